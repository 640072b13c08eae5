package resp

import (
	"runtime"
	"time"
)

const (
	// yieldAfter is the time after which a running connection lets others run.
	yieldAfter = 150 * time.Microsecond
	// A shared connection checks the clock after clockCheckBytes of commands. Other connections
	// check it before each command.
	clockCheckBytes = 512
)

// shared reports whether the connection runs on a goroutine of the poller, so that other
// connections wait. It is false for a detached connection and without a poller.
func (c *Conn) shared() bool { return c.sock != nil && c.sock.Shared() }

// Detach moves a polled connection to a goroutine of its own until the connection reads again. Call
// Detach before anything that may block or compute for long, except Await. It costs about a
// microsecond.
func (c *Conn) Detach() {
	if c.sock != nil {
		c.sock.Detach()
	}
}

// detachInOrder is Detach for a connection that waits for a commit. Such connections continue one
// after the other, in the order of their calls.
func (c *Conn) detachInOrder() {
	if c.sock != nil {
		c.sock.DetachInOrder()
	}
}

// Yield lets other connections run if this one has run for yieldAfter, and returns how long it
// paused. A command that computes for long calls Yield now and then. Without a pause Yield costs
// little more than reading the clock. A detached connection stays detached, but pauses until the
// poller resumes it.
func (c *Conn) Yield() (paused time.Duration) {
	now := c.age()
	switch {
	case c.runningSince == 0:
		c.runningSince = now
		return 0
	case now-c.runningSince < yieldAfter:
		return 0
	case c.sock != nil:
		c.sock.Yield()
	default:
		if p := c.server.currentPoller(); p != nil {
			p.Wake()
		}
		runtime.Gosched()
	}
	c.runningSince = c.age()
	return c.runningSince - now
}
