package resp

import (
	"errors"
	"os"
	"time"
)

// Wakeup is why Wait.Await returned.
type Wakeup int

// The reasons.
const (
	Woken            Wakeup = iota + 1 // Wake was called
	TimedOut                           // the deadline passed
	Gone                               // the connection has ended
	UnblockedTimeout                   // CLIENT UNBLOCK: reply as after the deadline
	UnblockedError                     // CLIENT UNBLOCK … ERROR
	ShuttingDown                       // Server.Shutdown

	parked Wakeup = 0 // the wait has not ended
)

var wakeupNames = [...]string{"parked", "woken", "timed out", "gone", "unblocked", "unblocked with an error", "shutting down"}

func (w Wakeup) String() string {
	if w >= 0 && int(w) < len(wakeupNames) {
		return wakeupNames[w]
	}
	return "unknown"
}

// Wait is one blocked command. Each command has a Wait of its own, so a late Wake has no effect on
// the next command.
type Wait struct {
	c     *Conn
	woken bool // protected by c.readMu
}

// NewWait prepares to block the command being executed.
func (c *Conn) NewWait() *Wait {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.unblock = parked
	return &Wait{c: c}
}

// Wake ends the current Await, or the next one. Any goroutine may call it, any number of times. It
// does not block.
func (w *Wait) Wake() {
	w.c.readMu.Lock()
	defer w.c.readMu.Unlock()
	w.woken = true
	if w.c.wait == w {
		w.c.interruptLocked()
	}
}

// Await commits and sends the replies of earlier commands. Then it blocks until Wake, the deadline
// (zero = none) or another reason ends the wait. If several apply, Gone comes first and Woken
// second.
//
// Await may be called again. A Wake ends one Await. CLIENT UNBLOCK, a shutdown and a disconnect
// also end the later ones.
//
// The arguments of the command remain valid. Bytes that arrive meanwhile stay in the buffer. If the
// client sends more bytes than the largest command may have, the server disconnects it. Before
// authentication that limit is lower.
func (w *Wait) Await(deadline time.Time) Wakeup {
	c := w.c
	c.beginWait(w)
	defer c.endWait()
	if c.Flush() != nil {
		return Gone
	}
	room := c.in.extend
	if c.unauthenticated() {
		room = c.in.extendUnauth
	}
	for {
		if why := c.checkWait(w, deadline); why != parked {
			return why
		}
		if err := c.fill(room); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.fail(err)
			return Gone
		}
	}
}

func (c *Conn) beginWait(w *Wait) {
	c.server.blocked.Add(1)
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.wait = w
}

func (c *Conn) endWait() {
	c.server.blocked.Add(-1)
	c.touch()
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.wait.woken = false
	// c.unblock stays set: if a Wake came after it and ended this Await, it ends the next one.
	c.wait = nil
	c.rearm()
}

// checkWait returns why the wait ends. If it goes on, checkWait sets the read deadline. Both happen
// in one critical section, so that no Wake is lost in between.
func (c *Conn) checkWait(w *Wait, deadline time.Time) Wakeup {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	switch {
	case c.closed.Load():
		return Gone
	case w.woken:
		return Woken
	case c.unblock != parked:
		return c.unblock
	case c.draining:
		return ShuttingDown
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return TimedOut
	}
	c.readUntil(deadline)
	return parked
}

// Unblock ends the wait of a blocked command: with an error if asError, else as if its deadline had
// passed. It returns false if no command is blocked, or if its wait is about to end for another
// reason. Any goroutine may call it.
func (c *Conn) Unblock(asError bool) bool {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if c.wait == nil || c.wait.woken || c.unblock != parked {
		return false
	}
	c.unblock = UnblockedTimeout
	if asError {
		c.unblock = UnblockedError
	}
	c.interruptLocked()
	return true
}

// Blocked reports whether a command is blocked. Any goroutine may call it.
func (c *Conn) Blocked() bool {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	return c.wait != nil
}
