// Package wire tests the whole server in fake time, with the embedded engine. Clients speak RESP
// over pipes in memory. Waits take no real time, and every instant is exact.
package wire

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// pipeServer is a server whose connections are pipes in memory.
type pipeServer struct {
	t      *testing.T
	server *resp.Server
	engine *engine.Engine
}

func pipes(t *testing.T, j engine.Journal) *pipeServer {
	t.Helper()
	broker := resp.NewBroker()
	e, err := engine.New(engine.Config{
		Clock: engine.NewClock(0), HandoffWindow: time.Second, QueueGrace: 5 * time.Second,
		Notices: commands.Notices(broker),
	}, j, engine.Recovery{})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	x := commands.New(commands.Config{Backend: e, Logger: quiet})
	s := resp.NewServer(resp.Config{Committer: e, Broker: broker, Logger: quiet}, x)
	x.Attach(s)
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		e.Stop()
	})
	return &pipeServer{t, s, e}
}

// peer is the client's end of a connection.
type peer struct {
	redis.Conn
	t    *testing.T
	pipe net.Conn
}

func (p *pipeServer) dial() *peer {
	p.t.Helper()
	ours, theirs := net.Pipe()
	go p.server.ServeConn(theirs)
	c := &peer{redis.NewConn(ours, 0, 0), p.t, ours}
	p.t.Cleanup(func() { c.Close() })
	return c
}

// record sends a command whose reply must be a record.
func (c *peer) record(command string, args ...any) simbatest.Record {
	c.t.Helper()
	m, err := simbatest.ToRecord(c.Do(command, args...))
	if err != nil {
		c.t.Fatalf("%s %v: %v", command, args, err)
	}
	return m
}

func (c *peer) integer(command string, args ...any) int {
	c.t.Helper()
	n, err := redis.Int(c.Do(command, args...))
	if err != nil {
		c.t.Fatalf("%s %v: %v", command, args, err)
	}
	return n
}

// answer is the reply to a command, perhaps before it arrives.
type answer struct {
	done  chan struct{}
	reply any
	err   error
}

// ask sends a command and does not wait for its reply.
func (c *peer) ask(command string, args ...any) *answer {
	a := &answer{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.reply, a.err = c.Do(command, args...)
	}()
	return a
}

// came waits until all goroutines are blocked. Then it reports whether the reply has arrived.
func (a *answer) came() bool {
	synctest.Wait()
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (a *answer) record(t *testing.T) simbatest.Record {
	t.Helper()
	<-a.done
	m, err := simbatest.ToRecord(a.reply, a.err)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// listen subscribes to channels, and returns a Go channel with each message as "channel payload".
func (p *pipeServer) listen(channels ...any) <-chan string {
	p.t.Helper()
	ps := redis.PubSubConn{Conn: p.dial()}
	if err := ps.Subscribe(channels...); err != nil {
		p.t.Fatal(err)
	}
	heard := make(chan string, 100)
	ready := make(chan struct{})
	go func() {
		defer close(heard)
		for confirmed := 0; ; {
			switch m := ps.Receive().(type) {
			case redis.Subscription:
				if confirmed++; confirmed == len(channels) {
					close(ready)
				}
			case redis.Message:
				heard <- m.Channel + " " + string(m.Data)
			case error:
				return
			}
		}
	}()
	<-ready
	return heard
}

func receivedSoFar(heard <-chan string) (all []string) {
	synctest.Wait()
	for {
		select {
		case h := <-heard:
			all = append(all, h)
		default:
			return all
		}
	}
}

func TestLeaderIsElectedHandedOffAndAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes(t, engine.Memory())
		mutex := p.listen("simba:{job}")
		notices := p.listen("simba:{job}:b")
		a, b, c := p.dial(), p.dial(), p.dial()

		want := simbatest.Record{"status": "acquired", "owner": "a", "token": int64(1), "ttl": int64(10000), "transition": int64(12000), "position": int64(0)}
		if got := a.record("SIMBA.ACQUIRE", "job", "a", 10000, "TRANSITION", 2000); !maps.Equal(got, want) {
			t.Fatalf("ACQUIRE by a returns %v, want %v", got, want)
		}
		if got := b.record("SIMBA.ACQUIRE", "job", "b", 10000); got["status"] != "queued" || got["position"] != int64(1) || got["owner"] != "a" {
			t.Fatalf("ACQUIRE by b returns %v, want queued", got)
		}
		waiting := c.ask("SIMBA.ACQUIRE", "job", "c", 10000, "WAIT", 0)
		if waiting.came() {
			t.Fatalf("the request of c did not block: %v", waiting.reply)
		}
		if a.integer("SIMBA.RELEASE", "job", "a") != 1 {
			t.Fatal("RELEASE by a failed")
		}
		if got := receivedSoFar(notices); len(got) != 1 || got[0] != "simba:{job}:b released@@a" {
			t.Fatalf("the channel of b received %q, want its notice of the release", got)
		}
		if waiting.came() {
			t.Fatal("c got the mutex before b")
		}
		if got := b.record("SIMBA.ACQUIRE", "job", "b", 10000); got["status"] != "acquired" || got["token"] != int64(2) {
			t.Fatalf("ACQUIRE by b after its notice returns %v, want acquired with token 2", got)
		}
		b.integer("SIMBA.RELEASE", "job", "b")
		if got := waiting.record(t); got["status"] != "acquired" || got["owner"] != "c" || got["token"] != int64(3) {
			t.Fatalf("the wait of c ends with %v, want acquired with token 3", got)
		}
		if got := fmt.Sprint(receivedSoFar(mutex)); got != "[simba:{job} acquired@@a simba:{job} acquired@@b simba:{job} acquired@@c]" {
			t.Errorf("the channel of the mutex received %v, want the three grants in order", got)
		}
	})
}

func TestDeadOwnersMutexGoesToTheNextAtTransitionAtNoEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes(t, engine.Memory())
		a, b := p.dial(), p.dial()
		a.record("SIMBA.ACQUIRE", "job", "a", 10000, "TRANSITION", 2000)
		start := time.Now()
		waiting := b.ask("SIMBA.ACQUIRE", "job", "b", 10000, "WAIT", 0)
		a.Close() // the lease continues, and a reconnects below
		time.Sleep(11999 * time.Millisecond)
		back := p.dial()
		if got := back.record("SIMBA.GUARD", "job", "a", 10000, "TRANSITION", 2000); got["status"] != "renewed" || got["token"] != int64(1) {
			t.Errorf("GUARD by a in its transition window returns %v, want renewed with token 1", got)
		}
		back.Close()
		got := waiting.record(t)
		if took := time.Since(start); took != (11999+12000)*time.Millisecond {
			t.Errorf("b owns the mutex after %v, want 23.999s", took)
		}
		if got["status"] != "acquired" || got["token"] != int64(2) {
			t.Errorf("the wait of b ends with %v, want acquired", got)
		}
	})
}

func TestDisconnectOfABlockedClientIsNoticedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes(t, engine.Memory())
		a, b, c := p.dial(), p.dial(), p.dial()
		a.record("SIMBA.ACQUIRE", "job", "a", 600000)
		b.ask("SIMBA.ACQUIRE", "job", "b", 600000, "WAIT", 0).came()
		third := c.ask("SIMBA.ACQUIRE", "job", "c", 600000, "WAIT", 0)
		third.came()
		b.pipe.Close()
		synctest.Wait() // waits for all goroutines; no time passes
		if kinds := p.engine.Stats(); kinds.Blocked != 1 || kinds.Polling != 1 {
			t.Errorf("%d waiters are blocked and %d poll, want 1 and 1", kinds.Blocked, kinds.Polling)
		}
		a.integer("SIMBA.RELEASE", "job", "a")
		if got := third.record(t); got["owner"] != "c" {
			t.Errorf("the wait of c ends with %v, want acquired", got)
		}
	})
}

func TestSessionEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes(t, engine.Memory())
		a, b := p.dial(), p.dial()
		a.record("SIMBA.ACQUIRE", "job", "a", 600000, "SESSION")
		waiting := b.ask("SIMBA.ACQUIRE", "job", "b", 600000, "WAIT", 0, "SESSION")
		waiting.came()
		a.pipe.Close()
		if got := waiting.record(t); got["status"] != "acquired" {
			t.Errorf("the wait of b ends with %v, want acquired", got)
		}
		b.pipe.Close()
		synctest.Wait()
		if held := p.engine.Stats().Held; held != 0 {
			t.Errorf("%d mutexes still have an owner whose session has ended", held)
		}
	})
}

func TestShutdownAnswersBlockedClientsAndKeepsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes(t, engine.Memory())
		a, b := p.dial(), p.dial()
		a.record("SIMBA.ACQUIRE", "job", "a", 600000, "SESSION")
		waiting := b.ask("SIMBA.ACQUIRE", "job", "b", 600000, "WAIT", 0)
		waiting.came()
		if err := p.server.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-waiting.done
		if err := waiting.err; err == nil || len(err.Error()) < 9 || err.Error()[:9] != "UNBLOCKED" {
			t.Errorf("the blocked client gets %v, %v, want UNBLOCKED", waiting.reply, waiting.err)
		}
		if held := p.engine.Stats().Held; held != 1 {
			t.Errorf("after the shutdown %d leases are left, want 1", held)
		}
	})
}

// heldBack is a Journal that makes changes durable only when the test calls fsync.
type heldBack struct {
	mu   sync.Mutex
	cond *sync.Cond
	last simba.Seq
	upTo simba.Seq // changes up to this Seq are durable
}

func newHeldBack() *heldBack {
	h := new(heldBack)
	h.cond = sync.NewCond(&h.mu)
	return h
}

func (h *heldBack) AppendAll(changes []simba.Change) bool {
	for _, ch := range changes {
		h.Append(ch)
	}
	return true
}

func (h *heldBack) Append(ch simba.Change) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = ch.Seq
	return true
}

func (h *heldBack) Commit(seq simba.Seq) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.upTo < seq {
		h.cond.Wait()
	}
	return nil
}

func (h *heldBack) Committed() simba.Seq {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.upTo
}

func (h *heldBack) fsync() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.upTo = h.last
	h.cond.Broadcast()
}

// readCalls has the arguments of commands for which reads cannot choose valid ones.
var readCalls = map[string][]any{
	"simba.check": {"SIMBA.CHECK", "job", 1},
	"simba.scan":  {"SIMBA.SCAN", 0, "COUNT", 10000},
	"scan":        {"SCAN", 0, "COUNT", 10000},
	"keys":        {"KEYS", "*"},
}

// reads returns a call of each command that reads. For a command that readCalls lacks, the first
// argument is the mutex job, and the others are 0.
func (c *peer) reads() (calls [][]any) {
	c.t.Helper()
	names, err := redis.Strings(c.Do("COMMAND", "LIST", "FILTERBY", "ACLCAT", "read"))
	if err != nil || len(names) < 30 {
		c.t.Fatalf("COMMAND LIST returns %d commands that read, %v, want at least 30", len(names), err)
	}
	for _, name := range names {
		if call, ok := readCalls[name]; ok {
			calls = append(calls, call)
			continue
		}
		var call []any
		for _, word := range strings.Split(name, "|") {
			call = append(call, word)
		}
		info, err := redis.Values(c.Do("COMMAND", "INFO", name))
		if err != nil {
			c.t.Fatal(err)
		}
		fields := info[0].([]any)
		arity := int(fields[1].(int64))
		for arg := any("job"); len(call) < max(arity, -arity); arg = 0 {
			call = append(call, arg)
		}
		calls = append(calls, call)
	}
	return calls
}

func TestNoClientSeesAGrantBeforeItsFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newHeldBack()
		p := pipes(t, disk)
		notices := p.listen("simba:{job}", "simba-events:{job}")
		views := map[string]*answer{
			"ACQUIRE by a": p.dial().ask("SIMBA.ACQUIRE", "job", "a", 600000),
		}
		synctest.Wait()
		for _, command := range append(p.dial().reads(), [][]any{
			{"SIMBA.ACQUIRE", "job", "b", 1000, "NOQUEUE"},
			{"SIMBA.GUARD", "job", "b", 1000},
			{"INFO", "keyspace"},
			{"MGET", "other", "job"},
			{"SET", "job", "b", "NX", "PX", 1000},
			{"EVAL", "return redis.call('exists', KEYS[1])", 1, "job"},
			{"EVAL", "return redis.error_reply(redis.call('get', 'job'))", 0},
		}...) {
			views[fmt.Sprint(command)] = p.dial().ask(command[0].(string), command[1:]...)
		}
		time.Sleep(time.Hour / 10)
		for name, view := range views {
			if view.came() {
				t.Errorf("%s has the reply %v, %v before the fsync; if the reply does not show the grant, readCalls needs an entry", name, view.reply, view.err)
			}
		}
		if got := receivedSoFar(notices); len(got) != 0 {
			t.Errorf("before the fsync the subscriber received %q, want nothing", got)
		}
		disk.fsync()
		for name, view := range views {
			if !view.came() {
				t.Errorf("%s has no reply after the fsync", name)
			}
		}
		if got := receivedSoFar(notices); len(got) != 2 {
			t.Errorf("after the fsync the subscriber received %q, want two notices", got)
		}
	})
}

func TestCommandsOfOnePipelineShareAnFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newHeldBack()
		p := pipes(t, disk)
		a := p.dial()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 16 {
				_ = a.Send("SIMBA.ACQUIRE", fmt.Sprint("m", i), "a", 1000)
			}
			if err := a.Flush(); err != nil {
				t.Error(err)
			}
			for range 16 {
				if _, err := a.Receive(); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		disk.fsync() // one fsync is enough for all
		<-done
	})
}
