package resp

import (
	"runtime"
	"time"
)

// Others have a turn when one's has lasted for turnTime, by a clock that is looked at after each command; where a poller
// serves many, and commands are short, after lookBytes of them.
const (
	turnTime  = 150 * time.Microsecond
	lookBytes = 512
)

// polled reports whether others wait while the connection's goroutine does anything.
func (c *Conn) polled() bool { return c.sock != nil && c.sock.Shared() }

// Detach is called before anything that may wait, but for Await, or compute for long: until it reads
// on, the connection then holds up no other one. It costs about a microsecond.
func (c *Conn) Detach() {
	if c.sock != nil {
		c.sock.Detach()
	}
}

// lineUp is Detach for a connection that waits for the next write to the disk. Such connections wait
// together, in the order of their calls.
func (c *Conn) lineUp() {
	if c.sock != nil {
		c.sock.DetachInOrder()
	}
}

// Yield lets other connections run if this one has run for turnTime, and returns for how long they did. A command
// that computes for long calls it now and then. It costs little more than a look at the clock. A
// connection that is detached stays so: it goes on when a round of the poller lets it.
func (c *Conn) Yield() (away time.Duration) {
	now := c.age()
	switch {
	case c.turn == 0:
		c.turn = now
		return 0
	case now-c.turn < turnTime:
		return 0
	case c.sock != nil:
		c.sock.Yield()
	default:
		if p := c.server.pollerOf(); p != nil {
			p.Wake()
		}
		runtime.Gosched()
	}
	c.turn = c.age()
	return c.turn - now
}
