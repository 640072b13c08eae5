package commands

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

func TestABatchCommitsOnceItsLargestSeq(t *testing.T) {
	seq := simba.Seq(40)
	backend := &fakeBackend{
		acquire: func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			seq++
			return simba.Outcome{Status: simba.StatusAcquired, Owner: "c", Token: 1, Seq: seq}, nil, nil
		},
		release: func(simba.ReleaseRequest) (bool, simba.Seq, error) { return true, 7, nil },
	}
	p := newSite(t, Config{Backend: backend}).dial()
	p.send("SIMBA.ACQUIRE m c 1", "SIMBA.ACQUIRE n c 1", "SIMBA.RELEASE o c", "PING")
	for range 4 {
		p.reply()
	}
	if got := backend.commits(); !slices.Equal(got, []simba.Seq{42}) {
		t.Errorf("the first batch committed %v, want [42]", got)
	}
	p.do("SIMBA.RELEASE o c")
	if got := backend.commits(); !slices.Equal(got, []simba.Seq{7}) {
		t.Errorf("the next batch committed %v, want [7]", got)
	}
}

func TestABatchCommitsEvenWithoutAChange(t *testing.T) {
	s := newSite(t, Config{})
	p := s.dial()
	p.do("SIMBA.OWNER m") // the read may have expired a lease, so a notice may be due
	if got := s.backend.commits(); !slices.Equal(got, []simba.Seq{0}) {
		t.Errorf("SIMBA.OWNER committed %v, want [0]", got)
	}
	p.do("PING")
	if got := s.backend.commits(); len(got) > 0 {
		t.Errorf("PING committed %v, want no commit", got)
	}
}

func TestRepliesAreDroppedIfTheCommitFails(t *testing.T) {
	s := newSite(t, Config{})
	s.backend.commit = func(simba.Seq) error { return errors.New("disk gone") }
	p := s.dial()
	p.send("SIMBA.OWNER m")
	p.expectEnd()
}

// reads maps full names of commands to calls of them. The commands ask the backend and change
// nothing.
// tests/wire covers those that run in a transaction of the keyspace.
var reads = map[string][]string{
	"simba.owner":   {"SIMBA.OWNER m"},
	"simba.queue":   {"SIMBA.QUEUE m"},
	"simba.scan":    {"SIMBA.SCAN 0"},
	"simba.check":   {"SIMBA.CHECK m 1"},
	"simba.history": {"SIMBA.HISTORY m"},
	"scan":          {"SCAN 0"},
	"type":          {"TYPE simba:{m}"},
	"strlen":        {"STRLEN simba:{m}"},
	"dbsize":        {"DBSIZE"},
	"info":          {"INFO keyspace", "INFO stats", "INFO simba"},
}

func TestReadsAreDurableBeforeTheReply(t *testing.T) {
	for name, row := range backendRows() {
		if row.flags&readonly != 0 && reads[name] == nil {
			t.Errorf("%s has the flag readonly: add a call of it to reads", name)
		}
	}
	held := simba.Tenure{Owner: "c", Token: 1}
	backend := &fakeBackend{
		stats:   simba.Stats{Held: 3, Seq: 9},
		owner:   func(string) (simba.Tenure, simba.Seq, error) { return held, 9, nil },
		queue:   func(string, int) ([]simba.QueueEntry, simba.Seq, error) { return nil, 9, nil },
		scan:    func(simba.ScanRequest) (simba.ScanPage, simba.Seq, error) { return simba.ScanPage{}, 9, nil },
		check:   func(string, uint64) (bool, simba.Seq, error) { return true, 9, nil },
		history: func(simba.HistoryRequest) ([]simba.Event, simba.Seq, error) { return nil, 9, nil },
	}
	p := newSite(t, Config{Backend: backend}).dial()
	for range 2 { // a held mutex and a free one, whose release may not be durable
		for _, calls := range reads {
			for _, read := range calls {
				p.do(read)
				if got := backend.commits(); !slices.Equal(got, []simba.Seq{9}) {
					t.Errorf("%s committed %v, want [9]: its handler must call ReplyAfter with the Seq", read, got)
				}
			}
		}
		held = simba.Tenure{}
	}
}

func TestOnlyAuthenticationIsServedBeforeAuth(t *testing.T) {
	file := newUsersFile(t, "user default on >sesam ~* &* +@all")
	s := newSite(t, Config{Users: file.open()})
	p := s.dial()
	const noAuth = "-NOAUTH Authentication required.\r\n"
	for _, command := range []string{"PING", "SIMBA.ACQUIRE m c 1", "COMMAND", "INFO", "CLIENT ID", "SUBSCRIBE a", "MULTI", "SHUTDOWN", "MONITOR"} {
		p.expect(command, noAuth)
	}
	p.expect("nonsense", failed("ERR unknown command 'nonsense', with args beginning with: "))
	p.expect("SIMBA.OWNER", failed("ERR wrong number of arguments for 'simba.owner' command"))
	if got := p.do("HELLO 3"); !strings.HasPrefix(got, "-NOAUTH HELLO must be called with the client already authenticated") {
		t.Errorf("HELLO 3 replied %q, want NOAUTH", got)
	}
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	p.expect("AUTH sesa", wrong)
	p.expect("AUTH sesame", wrong)
	p.expect(`AUTH ""`, wrong)
	p.expect("AUTH another sesam", wrong)
	p.expect("HELLO 3 AUTH default sesame", wrong)
	p.expect("PING", noAuth)
	p.expect("AUTH sesam", ok)
	p.expect("PING", "+PONG\r\n")
	p.expect("RESET", "+RESET\r\n")
	p.expect("PING", noAuth)
	p.expect("AUTH default sesam", ok)
	p.expect("ACL WHOAMI", bulk("default"))

	q := s.dial()
	if got := q.do("HELLO 3 AUTH default sesam SETNAME me"); got[0] != '%' {
		t.Errorf("HELLO with the password replied %q, want a map", got)
	}
	q.expect("CLIENT GETNAME", bulk("me"))
	q.expect("QUIT", ok)
	q.expectEnd()

	file.write("user default on nopass ~* &* +@all")
	p.expect("ACL LOAD", ok)
	s.dial().expect("PING", "+PONG\r\n")
}

func TestHelloDescribesTheServer(t *testing.T) {
	p := newSite(t, Config{}).dial()
	for _, proto := range []int{2, 3, 2} {
		p.expect(fmt.Sprintf("HELLO %d", proto), record(proto, "server", bulk("redis"), "version", bulk("7.2.0"), "proto", integers(int64(proto)),
			"id", integers(1), "mode", bulk("standalone"), "role", bulk("master"), "modules", "*0\r\n"))
	}
}

func TestShutdownEndsTheConnectionWithoutAReply(t *testing.T) {
	asked := make(chan struct{}, 1)
	p := newSite(t, Config{Shutdown: func() { asked <- struct{}{} }}).dial()
	p.expect("SHUTDOWN ABORT", failed("ERR No shutdown in progress."))
	p.expect("SHUTDOWN LATER", failed("ERR syntax error"))
	p.send("SHUTDOWN NOSAVE NOW")
	p.expectEnd()
	<-asked
}

func TestTheReplyOfATransactionIsBounded(t *testing.T) {
	backend := &fakeBackend{history: func(simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
		return []simba.Event{{Reason: strings.Repeat("x", 1<<20)}}, 0, nil
	}}
	p := newSite(t, Config{Backend: backend}).dial()
	p.expect("MULTI", ok)
	const queued = maxExecReply>>20 + 5
	for range queued {
		p.expect("SIMBA.HISTORY m SINCE 1", "+QUEUED\r\n")
	}
	reply := p.do("EXEC")
	if ran, refused := len(backend.takeCalls()), strings.Count(reply, "-"+string(errExecReply)); ran >= queued || refused != queued-ran {
		t.Errorf("of %d commands %d ran and %d were refused, want some refused and the rest run", queued, ran, refused)
	}
}

func TestSubscriptionsAreRefusedInATransaction(t *testing.T) {
	p := newSite(t, Config{}).dial()
	p.expect("MULTI", ok)
	for _, command := range []string{"SUBSCRIBE a b", "UNSUBSCRIBE", "MONITOR"} {
		p.expect(command, "-ERR Command not allowed inside a transaction\r\n")
	}
	p.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
}

func TestPasswordsOfQueuedCommandsStayOutOfTheSlowlog(t *testing.T) {
	p := newSite(t, Config{}).dial()
	p.expect("CONFIG SET slowlog-log-slower-than 0", ok)
	p.do("SLOWLOG RESET")
	p.do("MULTI")
	p.do("AUTH default sesam")
	p.do("EXEC")
	p.do("HELLO 2 AUTH default sesam")
	p.do("CONFIG SET requirepass sesam")
	if got := p.do("SLOWLOG GET -1"); strings.Contains(got, "sesam") {
		t.Errorf("SLOWLOG GET replied %q, which shows the password", got)
	}
}

// An acquire, the hot path, allocates only the name of the mutex and the id of the contender.
func TestAcquireAllocatesOnlyItsNames(t *testing.T) {
	onConnection(t, func(x *Commands, conn *resp.Conn) {
		allocs := testing.AllocsPerRun(1000, func() {
			x.Execute(conn, acquireArgs)
			conn.Reply().Truncate(0)
			if err := conn.Commit(); err != nil {
				t.Error(err)
			}
		})
		if allocs > 2 {
			t.Errorf("an acquire makes %v allocations, want at most 2", allocs)
		}
	})
}

var acquireArgs = [][]byte{[]byte("SIMBA.ACQUIRE"), []byte("mutex"), []byte("contender"), []byte("10000"), []byte("TRANSITION"), []byte("2000")}

// onConnection calls f on the goroutine of a connection. The backend grants every acquire at once.
func onConnection(t testing.TB, f func(*Commands, *resp.Conn)) {
	onConnectionTo(t, new(plainBackend), f)
}

func onConnectionTo(t testing.TB, backend simba.Backend, f func(*Commands, *resp.Conn)) {
	x := New(Config{Backend: backend})
	server := resp.NewServer(resp.Config{Committer: backend}, &detour{x, f})
	x.Attach(server)
	near, far := net.Pipe()
	var running sync.WaitGroup
	running.Go(func() { server.ServeConn(far) })
	newPeer(t, near).expect("PING", "+PONG\r\n")
	near.Close()
	running.Wait()
}

type detour struct {
	*Commands
	f func(*Commands, *resp.Conn)
}

func (d *detour) Execute(conn *resp.Conn, args [][]byte) {
	if d.f != nil {
		d.f(d.Commands, conn)
		d.f = nil
		conn.Reply().Truncate(0)
	}
	d.Commands.Execute(conn, args)
}

// plainBackend grants at once and allocates nothing.
type plainBackend struct{ fakeBackend }

func (b *plainBackend) Acquire(_ context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	return simba.Outcome{Status: simba.StatusAcquired, Owner: r.Contender, Token: 1, Seq: 1}, nil, nil
}

func (b *plainBackend) Commit(simba.Seq) error { return nil }
