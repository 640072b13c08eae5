package resp

import (
	"errors"
	"time"
)

// shrinkAfter is how often a connection with a grown buffer looks whether it
// still needs it.
const shrinkAfter = 2 * time.Second

// Why a connection's goroutine stops reading.
var (
	errDraining  = errors.New("the server is shutting down")
	errIdle      = errors.New("idle for longer than the timeout")
	errAnonymous = errors.New("not authenticated in time")
)

// past is a deadline that makes Read return at once.
var past = time.Unix(1, 0)

// lookUp makes the connection's goroutine return from Read, now or the next time
// it goes there. The caller holds c.park and has recorded why. A handshake is
// disturbed by a shutdown only; who looks up after it finds what was recorded.
func (c *Conn) lookUp() {
	if !c.shaking || c.draining {
		c.readUntil(past)
	}
}

// readUntil sets the read deadline. That fails only on a closed connection, as the
// next Read will tell. The caller holds c.park.
func (c *Conn) readUntil(t time.Time) { _ = c.wire.SetReadDeadline(t) }

// drain asks the connection to end when the commands that it has read are
// answered.
func (c *Conn) drain() {
	c.park.Lock()
	defer c.park.Unlock()
	c.draining = true
	c.lookUp()
}

// reconsider makes the connection apply a new idle timeout.
func (c *Conn) reconsider() {
	c.park.Lock()
	defer c.park.Unlock()
	c.lookUp()
}

// lookAround is called when the read deadline has passed between commands. It
// returns why the connection ends, or does what was due and sets the next deadline.
func (c *Conn) lookAround() error {
	if c.idle() && c.server.inUse(c) { // not under the lock: a store may be asked
		c.spared = c.age()
	}
	c.park.Lock()
	defer c.park.Unlock()
	if c.draining {
		return errDraining
	}
	if c.idle() {
		return errIdle
	}
	if c.overdue() {
		return errAnonymous
	}
	c.in.shrink()
	c.noteBuffers()
	c.reply.reset(minBuffer)
	c.rearm()
	return nil
}

// grown reports whether the connection holds more memory than a quiet one should.
func (c *Conn) grown() bool { return c.in.grown() || cap(c.reply.buf) > minBuffer }

// idle reports whether the client has been silent for the idle timeout, and may not be.
func (c *Conn) idle() bool {
	timeout := c.server.IdleTimeout()
	return timeout > 0 && !c.exempt() && time.Since(c.idleSince()) >= timeout
}

// idleSince is when the idle timeout began to count.
func (c *Conn) idleSince() time.Time {
	return c.created.Add(max(time.Duration(c.lastActive.Load()), c.spared))
}

// exempt reports whether the client listens: it may be silent as long as it likes.
func (c *Conn) exempt() bool { return c.listening || c.SubscriptionCount() > 0 }

// rearm sets the read deadline for the time between commands: to when something
// may be due, no earlier than needed. It is not moved while the client is active;
// that would cost a timer each batch. The caller holds c.park.
func (c *Conn) rearm() {
	if c.draining {
		c.lookUp()
		return
	}
	var next time.Time
	if idle := c.server.IdleTimeout(); idle > 0 {
		next = c.idleSince().Add(idle)
		if c.exempt() {
			next = time.Now().Add(idle)
		}
	}
	if c.shrinking = c.grown(); c.shrinking {
		if look := time.Now().Add(shrinkAfter); next.IsZero() || look.Before(next) {
			next = look
		}
	}
	// Not LastActive: a client that sends a byte now and then is active for ever.
	if by := c.authDeadline(); !by.IsZero() && (next.IsZero() || by.Before(next)) {
		next = by
	}
	c.readUntil(next)
}
