// Package wire tests whole servers in fake time. Clients speak RESP to them over pipes. Seconds
// pass at once, and every instant is exact to the nanosecond.
package wire

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
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

// pipeServer is a server whose connections are pipes.
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

// peer is a connection to the server.
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

// record asks for a record.
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

// answer is the reply to a command, perhaps still to come.
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

// came reports whether the reply has come when all goroutines are blocked.
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

// listen subscribes to channels and returns their messages, as "channel payload".
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
			t.Fatalf("a: %v", got)
		}
		if got := b.record("SIMBA.ACQUIRE", "job", "b", 10000); got["status"] != "queued" || got["position"] != int64(1) || got["owner"] != "a" {
			t.Fatalf("b: %v", got)
		}
		waiting := c.ask("SIMBA.ACQUIRE", "job", "c", 10000, "WAIT", 0)
		if waiting.came() {
			t.Fatalf("c did not block: %v", waiting.reply)
		}
		if a.integer("SIMBA.RELEASE", "job", "a") != 1 {
			t.Fatal("a did not release")
		}
		if got := receivedSoFar(notices); len(got) != 1 || got[0] != "simba:{job}:b released@@a" {
			t.Fatalf("b's channel: %q", got)
		}
		if waiting.came() {
			t.Fatal("c came before b")
		}
		if got := b.record("SIMBA.ACQUIRE", "job", "b", 10000); got["status"] != "acquired" || got["token"] != int64(2) {
			t.Fatalf("b after its notice: %v", got)
		}
		b.integer("SIMBA.RELEASE", "job", "b")
		if got := waiting.record(t); got["status"] != "acquired" || got["owner"] != "c" || got["token"] != int64(3) {
			t.Fatalf("c: %v", got)
		}
		if got := fmt.Sprint(receivedSoFar(mutex)); got != "[simba:{job} acquired@@a simba:{job} acquired@@b simba:{job} acquired@@c]" {
			t.Errorf("the mutex' channel: %v", got)
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
		a.Close() // its lease runs on, and it comes back below
		time.Sleep(11999 * time.Millisecond)
		back := p.dial()
		if got := back.record("SIMBA.GUARD", "job", "a", 10000, "TRANSITION", 2000); got["status"] != "renewed" || got["token"] != int64(1) {
			t.Errorf("the old owner guards in its transition window: %v", got)
		}
		back.Close()
		got := waiting.record(t)
		if took := time.Since(start); took != (11999+12000)*time.Millisecond {
			t.Errorf("b owns it after %v", took)
		}
		if got["status"] != "acquired" || got["token"] != int64(2) {
			t.Errorf("b: %v", got)
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
		synctest.Wait() // no time passes
		if kinds := p.engine.Stats(); kinds.Blocked != 1 || kinds.Polling != 1 {
			t.Errorf("%d blocked, %d polling", kinds.Blocked, kinds.Polling)
		}
		a.integer("SIMBA.RELEASE", "job", "a")
		if got := third.record(t); got["owner"] != "c" {
			t.Errorf("c: %v", got)
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
			t.Errorf("b: %v", got)
		}
		b.pipe.Close()
		synctest.Wait()
		if held := p.engine.Stats().Held; held != 0 {
			t.Errorf("%d mutexes are held by sessions that ended", held)
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
			t.Errorf("the blocked client was answered %v, %v", waiting.reply, waiting.err)
		}
		if held := p.engine.Stats().Held; held != 1 {
			t.Errorf("%d leases are left", held)
		}
	})
}

// heldBack is a Journal whose fsync waits for the test.
type heldBack struct {
	mu   sync.Mutex
	cond *sync.Cond
	last simba.Seq
	upTo simba.Seq // durable
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

func (h *heldBack) Commit(_ context.Context, seq simba.Seq) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.upTo < seq {
		h.cond.Wait()
	}
	return nil
}

func (h *heldBack) BeginCommit(seq simba.Seq) bool { return seq > h.Committed() }

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

func TestNoClientSeesAGrantBeforeItsFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newHeldBack()
		p := pipes(t, disk)
		notices := p.listen("simba:{job}", "simba-events:{job}")
		views := map[string]*answer{
			"its reply": p.dial().ask("SIMBA.ACQUIRE", "job", "a", 600000),
		}
		synctest.Wait()
		for name, command := range map[string][]any{
			"OWNER":             {"SIMBA.OWNER", "job"},
			"CHECK":             {"SIMBA.CHECK", "job", 1},
			"HISTORY":           {"SIMBA.HISTORY", "job"},
			"QUEUE":             {"SIMBA.QUEUE", "job"},
			"another's NOQUEUE": {"SIMBA.ACQUIRE", "job", "b", 1000, "NOQUEUE"},
			"another's GUARD":   {"SIMBA.GUARD", "job", "b", 1000},
			"SIMBA.SCAN":        {"SIMBA.SCAN", 0, "COUNT", 10000},
			"SCAN":              {"SCAN", 0, "COUNT", 10000},
			"TYPE":              {"TYPE", "simba:{job}"},
			"STRLEN":            {"STRLEN", "simba:{job}"},
			"DBSIZE":            {"DBSIZE"},
			"INFO":              {"INFO", "keyspace"},
			"GET":               {"GET", "job"},
			"PTTL":              {"PTTL", "simba:{job}"},
			"MGET":              {"MGET", "other", "job"},
			"KEYS":              {"KEYS", "*"},
			"another's SET":     {"SET", "job", "b", "NX", "PX", 1000},
			"a wrong type":      {"HGET", "job", "f"},
			"a script":          {"EVAL", "return redis.call('exists', KEYS[1])", 1, "job"},
			"a script's error":  {"EVAL", "return redis.error_reply(redis.call('get', 'job'))", 0},
		} {
			views[name] = p.dial().ask(command[0].(string), command[1:]...)
		}
		time.Sleep(time.Hour / 10)
		for name, view := range views {
			if view.came() {
				t.Errorf("%s shows a grant that a crash could undo: %v", name, view.reply)
			}
		}
		if got := receivedSoFar(notices); len(got) != 0 {
			t.Errorf("notices %q", got)
		}
		disk.fsync()
		for name, view := range views {
			if !view.came() {
				t.Errorf("%s hangs after the fsync", name)
			}
		}
		if got := receivedSoFar(notices); len(got) != 2 {
			t.Errorf("notices %q", got)
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
