package poll

import (
	"net"
	"syscall"
)

// Socket is a connection whose socket a Poller can adopt: a *net.TCPConn or a *net.UnixConn.
type Socket interface {
	net.Conn
	syscall.Conn
}

// Start runs the connection's coroutine, which ends when run returns. Call Start once.
func (c *Conn) Start(run func()) { c.task.start(run) }

// Shared reports whether other connections wait while this one runs. Only the connection's own
// coroutine may call Shared, Detach, DetachInOrder and Yield.
func (c *Conn) Shared() bool { return c.task.here != detached }

// Detach moves the coroutine to a goroutine of its own until its next Read. Call Detach before
// anything that may block or compute for long, except Read. It costs about a microsecond.
func (c *Conn) Detach() {
	if c.Shared() {
		c.task.switchTo(detached)
	}
}

// DetachInOrder is Detach for connections that all wait for the same event. These connections
// continue one after the other, in the order of their calls.
func (c *Conn) DetachInOrder() {
	if c.Shared() {
		c.task.switchTo(ordered)
	}
}

// Yield lets other connections run, and returns in a later round of the Poller. A round resumes
// only a few of the coroutines that have yielded. A detached coroutine stays detached.
func (c *Conn) Yield() {
	if c.Shared() {
		c.task.switchTo(shared)
	} else {
		c.task.switchTo(paused)
	}
}
