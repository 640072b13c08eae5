package resp

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// work is a server whose commands compute: in a bubble time passes for who sleeps, and to the server that is
// the same. WORK takes 2 ms, ENDLESS until end is closed, WAIT waits as a blocked command does.
type work struct {
	*Server
	end    chan struct{}
	busy   atomic.Int32 // connections that are in a WORK
	most   atomic.Int32 // of them at a time
	others atomic.Int64 // connections that a poller would serve during a WORK
}

func newWork(turns int) *work {
	w := &work{end: make(chan struct{})}
	w.Server = NewServer(Config{Turns: turns}, &script{commands: map[string]func(*Conn, [][]byte){
		"WORK": func(c *Conn, _ [][]byte) {
			n := w.busy.Add(1)
			w.most.Store(max(w.most.Load(), n))
			w.served.Add(w.others.Load())
			time.Sleep(2 * time.Millisecond)
			w.busy.Add(-1)
			c.Reply().Simple("DONE")
		},
		"ENDLESS": func(c *Conn, _ [][]byte) { <-w.end; c.Reply().Simple("DONE") },
		"WAIT":    func(c *Conn, _ [][]byte) { c.NewWait().Await(time.Now().Add(time.Hour)); c.Reply().Simple("DONE") },
	}})
	return w
}

// took is how long the server takes to answer.
func (cl *client) took(command, want string) time.Duration {
	cl.t.Helper()
	began := time.Now()
	cl.call(command, want)
	return time.Since(began)
}

// computes has the client compute so much that it takes turns.
func (cl *client) computes() {
	cl.t.Helper()
	for range 2 {
		cl.call("WORK\r\n", "+DONE\r\n")
	}
}

func TestWhoComputesWithoutPauseTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWork(1)
		other := dial(t, w.Server)
		var busy sync.WaitGroup
		var done [4]int
		began := time.Now()
		for i := range done {
			cl := dial(t, w.Server)
			busy.Go(func() {
				for time.Since(began) < 200*time.Millisecond {
					cl.call("WORK\r\n", "+DONE\r\n")
					done[i]++
				}
			})
		}
		time.Sleep(20 * time.Millisecond) // what one computes first is free
		w.most.Store(0)
		for range 20 {
			time.Sleep(5 * time.Millisecond)
			if d := other.took("PING\r\n", "+PONG\r\n"); d != 0 {
				t.Errorf("who does not compute waits %v", d)
			}
		}
		busy.Wait()
		if w.most.Load() != 1 {
			t.Errorf("%d computed at a time", w.most.Load())
		}
		for _, n := range done {
			if n < 200/2/len(done)-2 {
				t.Errorf("turns are not equal: %v", done)
				break
			}
		}
	})
}

func TestWithoutABoundAllComputeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWork(0)
		var busy sync.WaitGroup
		for range 4 {
			cl := dial(t, w.Server)
			busy.Go(func() {
				for range 5 {
					cl.call("WORK\r\n", "+DONE\r\n")
				}
			})
		}
		busy.Wait()
		if w.most.Load() != 4 {
			t.Errorf("%d of 4 computed at a time", w.most.Load())
		}
	})
}

func TestATurnEndsWhenItsHolderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWork(1)
		first, second := dial(t, w.Server), dial(t, w.Server)
		first.computes()
		first.send("WAIT\r\n")
		second.computes()
		if d := second.took("WORK\r\n", "+DONE\r\n"); d != 2*time.Millisecond {
			t.Errorf("it took %v beside a client that waits", d)
		}
	})
}

func TestWhereOthersAreServedATurnIsFollowedByAPauseAsLong(t *testing.T) {
	for others, want := range map[int64]time.Duration{0: 4 * time.Millisecond, 1: 4 * time.Millisecond, 2: 6 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := newWork(1)
			cl := dial(t, w.Server)
			cl.computes()
			w.others.Store(others)
			began := time.Now()
			cl.took("WORK\r\n", "+DONE\r\n")
			cl.took("WORK\r\n", "+DONE\r\n")
			if d := time.Since(began); d != want {
				t.Errorf("two turns beside which %d were served take %v, want %v", others, d, want)
			}
		})
	}
}

func TestNobodyWaitsForATurnThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWork(1)
		endless, second := dial(t, w.Server), dial(t, w.Server)
		endless.computes()
		endless.send("ENDLESS\r\n")
		synctest.Wait()
		for range 2 { // a long one is forgiven: it may have been others
			if d := second.took("WORK\r\n", "+DONE\r\n"); d != 2*time.Millisecond {
				t.Errorf("who has not computed much takes %v", d)
			}
		}
		if d := second.took("WORK\r\n", "+DONE\r\n"); d != patience+2*time.Millisecond {
			t.Errorf("who has not takes %v", d)
		}
		close(w.end)
		endless.expect("+DONE\r\n")
		time.Sleep(mostOwed)
		if d := second.took("WORK\r\n", "+DONE\r\n"); d != 2*time.Millisecond {
			t.Errorf("after its end it takes %v", d)
		}
	})
}
