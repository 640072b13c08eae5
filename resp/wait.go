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

// Wait is one blocked command. Because each command has its own Wait, a late Wake has no effect on
// the next command.
type Wait struct {
	c     *Conn
	woken bool // protected by interrupts.readMu
	again bool // Await has returned; protected by interrupts.readMu
}

// NewWait returns a Wait for the command that runs.
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

// Await commits and sends the replies to earlier commands. Then it blocks until Wake, the deadline
// (zero = none) or another reason ends the wait. Of several reasons, Await returns Gone first, then
// Woken.
//
// Await may be called again. A Wake ends one call of Await. CLIENT UNBLOCK, a shutdown and a
// disconnect also end all later calls. These return Woken last. Otherwise a wait could go on for ever
// if each Wake is in vain, and the next one comes before Await looks at the time.
//
// The arguments of the command remain valid. Received bytes stay in the buffer. If the client sends
// more bytes than the largest command may have, the server disconnects it. Before authentication
// the limit is lower.
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
		if c.closed.Load() {
			return Gone
		}
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
	c.wait.woken, c.wait.again = false, true
	// c.unblock stays set. If this Await returned Woken instead, c.unblock ends the next Await.
	c.wait = nil
	c.rearm()
}

// checkWait returns why the wait ends. If the wait goes on, checkWait sets the read deadline and
// returns parked. Both happen in one critical section, so that no Wake is lost in between.
func (i *interrupts) checkWait(w *Wait, deadline time.Time) Wakeup {
	i.readMu.Lock()
	defer i.readMu.Unlock()
	why := parked
	switch {
	case w.woken && !w.again:
		return Woken
	case i.unblock != parked:
		why = i.unblock
	case i.draining:
		why = ShuttingDown
	case !deadline.IsZero() && !time.Now().Before(deadline):
		why = TimedOut
	case w.woken:
		why = Woken
	default:
		i.readUntil(deadline)
	}
	return why
}

// Unblock ends the wait of a blocked command with UnblockedError if asError is set, otherwise with
// UnblockedTimeout. It returns false if no command is blocked, or if a Wake or an earlier Unblock
// is about to end the wait. Any goroutine may call it.
func (i *interrupts) Unblock(asError bool) bool {
	i.readMu.Lock()
	defer i.readMu.Unlock()
	if i.wait == nil || i.wait.woken || i.unblock != parked {
		return false
	}
	i.unblock = UnblockedTimeout
	if asError {
		i.unblock = UnblockedError
	}
	i.interruptLocked()
	return true
}

// Blocked reports whether a command is blocked. Any goroutine may call it.
func (i *interrupts) Blocked() bool {
	i.readMu.Lock()
	defer i.readMu.Unlock()
	return i.wait != nil
}
