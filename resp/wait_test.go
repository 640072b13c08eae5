package resp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var wakeupNames = [...]string{"parked", "woken", "timed out", "gone", "unblocked", "unblocked with an error", "shutting down"}

func (w Wakeup) String() string { return wakeupNames[w] }

// blocking is a script whose WAIT blocks until its limit or a wake-up, and replies why Await
// returned.
type blocking struct {
	script
	waits chan *Wait // receives the Wait of each WAIT before it blocks
	ends  chan Wakeup
}

func newBlocking(limit time.Duration) *blocking {
	h := &blocking{waits: make(chan *Wait, 8), ends: make(chan Wakeup, 8)}
	h.commands = map[string]func(*Conn, [][]byte){
		"WAIT": func(c *Conn, args [][]byte) {
			var deadline time.Time
			if limit > 0 {
				deadline = time.Now().Add(limit)
			}
			w := c.NewWait()
			h.waits <- w
			why := w.Await(deadline)
			h.ends <- why
			c.Reply().Simple(string(args[1]) + " " + why.String())
		},
	}
	return h
}

func TestWakeEndsABlockedCommand(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := newBlocking(0)
		s := NewServer(Config{}, h)
		cl := dial(t, s)
		cl.send("PING\r\nWAIT job\r\nPING\r\n")
		cl.expect("+PONG\r\n") // the server sends the earlier reply at once
		cl.expectSilence()
		if c := s.Conns()[0]; !c.Blocked() || s.Stats().Blocked != 1 {
			t.Error("the blocked command does not count as blocked")
		}
		time.Sleep(24 * time.Hour)
		w := <-h.waits
		w.Wake()
		w.Wake()
		cl.expect("+job woken\r\n+PONG\r\n")
		if c := s.Conns()[0]; c.Blocked() || s.Stats().Blocked != 0 {
			t.Error("the woken command still counts as blocked")
		}
		cl.call("PING\r\n", "+PONG\r\n")
	})
}

func TestAwaitMayBeCalledAgainAfterAWake(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		waits := make(chan *Wait, 1)
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"WAIT": func(c *Conn, args [][]byte) {
				w := c.NewWait()
				waits <- w
				deadline := time.Now().Add(time.Second)
				first := w.Await(deadline)
				if string(args[1]) == "again" {
					w.Wake() // before the second Await
				}
				c.Reply().Simple(first.String() + ", " + w.Await(deadline).String())
			},
		}}
		cl := dial(t, NewServer(Config{}, h))
		cl.send("WAIT again\r\n")
		(<-waits).Wake()
		cl.expect("+woken, woken\r\n")
		start := time.Now()
		cl.send("WAIT once\r\n")
		(<-waits).Wake()
		cl.expect("+woken, timed out\r\n")
		if d := time.Since(start); d != time.Second {
			t.Errorf("the second Await ended after %v, want 1 s", d)
		}
	})
}

func TestUnblockAfterAWakeEndsTheNextAwait(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		var waiting *Conn
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"WAIT": func(c *Conn, _ [][]byte) {
				waiting = c
				w := c.NewWait()
				reasons := ""
				for range 2 {
					if reasons != "" {
						reasons += ", "
					}
					reasons += w.Await(time.Now().Add(time.Second)).String()
				}
				c.Reply().Simple(reasons)
			},
		}}
		durable := make(chan struct{})
		conns := make(chan *Conn, 1)
		h.commit = func() error { // the first commit after WAIT has begun waits for durable
			select {
			case conns <- waiting:
				<-durable
			default:
			}
			return nil
		}
		cl := dial(t, NewServer(committing(h), h))
		cl.send("WAIT\r\n")
		c := <-conns
		synctest.Wait()
		if !c.Unblock(false) {
			t.Error("Unblock found no blocked command")
		}
		c.readMu.Lock()
		w := c.wait
		c.readMu.Unlock()
		w.Wake()
		close(durable)
		cl.expect("+woken, unblocked\r\n")
		cl.send("WAIT\r\n")
		cl.expect("+timed out, timed out\r\n")
	})
}

func TestStaleWakeHasNoEffect(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := newBlocking(time.Second)
		cl := dial(t, NewServer(Config{}, h))
		cl.call("WAIT 1\r\n", "+1 timed out\r\n")
		stale := <-h.waits
		stale.Wake()
		cl.call("PING\r\n", "+PONG\r\n")
		cl.send("WAIT 2\r\n")
		<-h.waits
		stale.Wake()
		start := time.Now()
		cl.expect("+2 timed out\r\n")
		if time.Since(start) != time.Second {
			t.Errorf("the wait ended after %v, want 1 s", time.Since(start))
		}
	})
}

func TestWakeAtTheDeadlineWins(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := newBlocking(0)
		h.commands["WAIT"] = func(c *Conn, _ [][]byte) {
			w := c.NewWait()
			w.Wake()
			c.Reply().Simple(w.Await(time.Now()).String())
		}
		dial(t, NewServer(Config{}, h)).call("WAIT\r\n", "+woken\r\n")
	})
}

func TestBlockedCommandEndsAtItsDeadline(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		cl := dial(t, NewServer(Config{IdleTimeout: time.Second}, newBlocking(time.Minute)))
		start := time.Now()
		cl.call("WAIT job\r\n", "+job timed out\r\n")
		if d := time.Since(start); d != time.Minute {
			t.Errorf("the wait ended after %v, want 1 min", d)
		}
		start = time.Now()
		cl.expectEnd("") // the idle timeout counts from the end of the wait
		if d := time.Since(start); d != time.Second {
			t.Errorf("the server closed the connection %v after the wait, want 1 s", d)
		}
	})
}

func TestGonePrecedesWoken(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := newBlocking(0)
		h.commands["WAIT"] = func(c *Conn, _ [][]byte) {
			w := c.NewWait()
			w.Wake()
			c.Close()
			h.ends <- w.Await(time.Time{})
		}
		dial(t, NewServer(Config{}, h)).send("WAIT\r\n")
		if why := <-h.ends; why != Gone {
			t.Errorf("Await returned %v, want Gone", why)
		}
	})
}

func TestBlockedClientCanBeUnblocked(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{}, newBlocking(0))
		cl := dial(t, s)
		cl.call("PING\r\n", "+PONG\r\n")
		c := s.Conns()[0]
		if c.Unblock(false) {
			t.Error("Unblock succeeded on a client that was not blocked")
		}
		cl.send("WAIT 1\r\n")
		synctest.Wait()
		if !c.Unblock(false) {
			t.Error("Unblock failed on a blocked client")
		}
		if c.Unblock(true) {
			t.Error("Unblock succeeded twice for one wait")
		}
		cl.expect("+1 unblocked\r\n")
		cl.send("WAIT 2\r\n")
		synctest.Wait()
		c.Unblock(true)
		cl.expect("+2 unblocked with an error\r\n")
		cl.send("WAIT 3\r\n")
		cl.expectSilence() // an Unblock ends one command only
	})
}

// The test holds back the commit inside Await. So Await has a reason to return, but has not
// returned.
func TestWokenClientCannotBeUnblocked(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		durable := make(chan struct{})
		h := newBlocking(0)
		h.commit = func() error { <-durable; return nil }
		s := NewServer(committing(&h.script), h)
		cl := dial(t, s)
		cl.send("WAIT job\r\n")
		(<-h.waits).Wake()
		synctest.Wait()
		if s.Conns()[0].Unblock(true) {
			t.Error("Unblock succeeded on a client that was already woken")
		}
		close(durable)
		cl.expect("+job woken\r\n")
	})
}

func TestCommandsQueueBehindABlockedOne(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := newBlocking(0)
		cl := dial(t, NewServer(Config{}, h))
		cl.send("WAIT job\r\n")
		n := 3 * minBuffer / len("PING\r\n") // the buffer has to grow
		for range n {
			cl.send("PING\r\n")
		}
		cl.expectSilence()
		(<-h.waits).Wake()
		cl.expect("+job woken\r\n" + strings.Repeat("+PONG\r\n", n))
	})
}

func TestShutdownEndsBlockedCommandsWithAReply(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := newBlocking(0)
		graceful := false
		h.closed = func(c *Conn) { graceful = c.ServerStopping() }
		s := NewServer(Config{}, h)
		cl := dial(t, s)
		cl.send("WAIT job\r\nPING\r\n")
		synctest.Wait()
		stopped := make(chan struct{})
		go func() {
			stopServer(t, s)
			close(stopped)
		}()
		cl.expectEnd("+job shutting down\r\n+PONG\r\n")
		<-stopped
		if !graceful {
			t.Error("ServerStopping is false, as if the client had disconnected")
		}
	})
}

func TestFailedCommitEndsTheWait(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := newBlocking(0)
		h.commit = func() error { return errCommit }
		cl := dial(t, NewServer(committing(&h.script), h))
		cl.send("PING\r\nWAIT job\r\n")
		if why := <-h.ends; why != Gone {
			t.Errorf("Await returned %v, want Gone", why)
		}
		cl.expectEnd("")
	})
}
