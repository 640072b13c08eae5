// Package wire tests the whole server in fake time, with the embedded engine. Clients speak RESP
// over pipes in memory. Waits take no real time, and every instant is exact.
package wire

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
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
}

func pipes(t *testing.T, j engine.Journal) *pipeServer {
	t.Helper()
	broker := resp.NewBroker()
	e, err := engine.New(engine.Config{
		Clock: engine.NewClock(0), HandoffWindow: time.Second, QueueGrace: 5 * time.Second,
		Notices: commands.Notices(broker),
	}, j, engine.Recovery{})
	simbatest.Must(t, err)
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
	return &pipeServer{t, s}
}

// peer is the client's end of a connection.
type peer struct {
	redis.Conn
	t *testing.T
}

func (p *pipeServer) dial() *peer {
	p.t.Helper()
	ours, theirs := net.Pipe()
	go p.server.ServeConn(theirs)
	c := &peer{redis.NewConn(ours, 0, 0), p.t}
	p.t.Cleanup(func() { c.Close() })
	return c
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

// listen subscribes to channels, and returns a Go channel with each message as "channel payload".
func (p *pipeServer) listen(channels ...any) <-chan string {
	p.t.Helper()
	ps := redis.PubSubConn{Conn: p.dial()}
	simbatest.Must(p.t, ps.Subscribe(channels...))
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
	rows, err := redis.Values(c.Do("COMMAND"))
	if err != nil {
		c.t.Fatalf("COMMAND returns the error %v", err)
	}
	var names []string
	for _, row := range rows {
		fields := row.([]any)
		if categories, err := redis.Strings(fields[6], nil); err == nil && slices.Contains(categories, "@read") {
			names = append(names, string(fields[0].([]byte)))
		}
	}
	if len(names) < 20 {
		c.t.Fatalf("COMMAND returns %d commands that read, want at least 20", len(names))
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
		simbatest.Must(c.t, err)
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
