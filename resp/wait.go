package resp

import (
	"errors"
	"os"
	"time"
)

// Wakeup is why a Wait ended.
type Wakeup int

// The reasons.
const (
	Woken            Wakeup = iota + 1 // Wake was called
	TimedOut                           // the deadline passed
	Gone                               // the client left, or was cut: nobody will see the reply
	UnblockedTimeout                   // CLIENT UNBLOCK: answer as if time had run out
	UnblockedError                     // CLIENT UNBLOCK … ERROR
	ShuttingDown                       // Server.Shutdown

	parked Wakeup = 0 // it has not ended
)

var wakeupNames = [...]string{"parked", "woken", "timed out", "gone", "unblocked", "unblocked with an error", "shutting down"}

func (w Wakeup) String() string {
	if w >= 0 && int(w) < len(wakeupNames) {
		return wakeupNames[w]
	}
	return "unknown"
}

// Wait is one blocked command. Each has its own, so a Wake that comes late, after
// its command has ended, finds nobody.
type Wait struct {
	c     *Conn
	woken bool // protected by c.park
}

// NewWait prepares to block the command being executed.
func (c *Conn) NewWait() *Wait {
	c.park.Lock()
	defer c.park.Unlock()
	c.unblock = parked
	return &Wait{c: c}
}

// Wake ends the wait, or the one to come if Await is not being called. Any
// goroutine may call it, any number of times; it does not block.
func (w *Wait) Wake() {
	w.c.park.Lock()
	defer w.c.park.Unlock()
	w.woken = true
	if w.c.wait == w {
		w.c.lookUp()
	}
}

// Await settles and sends the replies of the commands before this one, and then
// blocks until Wake, the deadline (zero = none) or another reason ends the wait. If
// several apply, Gone comes first and Woken second.
//
// It may be called again: what woke it once does not do so twice.
//
// The arguments of the command remain valid. Bytes that arrive meanwhile wait in
// the buffer; a client that sends more than one command may have is cut, sooner
// before it has authenticated.
func (w *Wait) Await(deadline time.Time) Wakeup {
	c := w.c
	c.beginWait(w)
	defer c.endWait()
	if c.Flush() != nil {
		return Gone
	}
	room := c.in.extend
	if c.unauthenticated() {
		room = c.in.extendAnonymous
	}
	for {
		if why := c.rouse(w, deadline); why != parked {
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
	c.park.Lock()
	defer c.park.Unlock()
	c.wait = w
}

func (c *Conn) endWait() {
	c.server.blocked.Add(-1)
	c.touch()
	c.park.Lock()
	defer c.park.Unlock()
	c.wait.woken = false
	c.wait = nil // not what unblocked it: if it goes on after a Wake that came first, that still holds
	c.rearm()
}

// rouse tells why the wait ends, or sets the read deadline to when it will. Both
// happen in one critical section, so a Wake cannot slip in between.
func (c *Conn) rouse(w *Wait, deadline time.Time) Wakeup {
	c.park.Lock()
	defer c.park.Unlock()
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

// Unblock ends the wait of a blocked command as if its time had run out, or with
// an error. It reports whether it did: false means that no command was blocked, or
// that its wait has a reason to end already. Any goroutine may call it.
func (c *Conn) Unblock(asError bool) bool {
	c.park.Lock()
	defer c.park.Unlock()
	if c.wait == nil || c.wait.woken || c.unblock != parked {
		return false
	}
	c.unblock = UnblockedTimeout
	if asError {
		c.unblock = UnblockedError
	}
	c.lookUp()
	return true
}

// Blocked reports whether a command is blocked. Any goroutine may call it.
func (c *Conn) Blocked() bool {
	c.park.Lock()
	defer c.park.Unlock()
	return c.wait != nil
}
