package resp

import (
	"errors"
	"net"
	"sync"
	"time"
)

// shrinkCheckEvery is how often a connection checks whether it still needs a grown buffer.
const shrinkCheckEvery = 2 * time.Second

// The reasons why a connection's goroutine stops reading.
var (
	errDraining        = errors.New("the server is shutting down")
	errIdle            = errors.New("idle for longer than the timeout")
	errUnauthenticated = errors.New("not authenticated in time")
)

// past is a deadline that makes Read return at once.
var past = time.Unix(1, 0)

// interrupts end the current or next Read of the connection's goroutine, for a reason that another
// goroutine has recorded.
type interrupts struct {
	socket net.Conn

	readMu      sync.Mutex // protects the rest, the reasons to interrupt Read
	wait        *Wait      // the blocked command
	unblock     Wakeup     // set by Unblock
	draining    bool       // the server is shutting down
	handshaking bool       // during the TLS handshake
}

// interruptLocked interrupts Read. The caller holds readMu and has recorded the reason. Only a
// shutdown interrupts a handshake. Another reason takes effect after the handshake.
func (i *interrupts) interruptLocked() {
	if !i.handshaking || i.draining {
		i.readUntil(past)
	}
}

// readUntil sets the read deadline. The caller holds readMu. SetReadDeadline fails only on a closed
// connection, and then Read fails too.
func (i *interrupts) readUntil(t time.Time) { _ = i.socket.SetReadDeadline(t) }

// drain ends the connection after the replies to the commands that it has read.
func (i *interrupts) drain() {
	i.readMu.Lock()
	defer i.readMu.Unlock()
	i.draining = true
	i.interruptLocked()
}

// interrupt makes the connection check its deadlines, because they have changed.
func (i *interrupts) interrupt() {
	i.readMu.Lock()
	defer i.readMu.Unlock()
	i.interruptLocked()
}

// ServerStopping reports whether the server is shutting down or suspended. Handler.Closed uses it to
// distinguish this from a disconnect. Any goroutine may call it.
func (c *Conn) ServerStopping() bool {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	return c.draining || c.server.suspended.Load()
}

// checkDeadlines handles a read deadline that has passed between commands. It returns why the
// connection ends, or nil after it has set the next deadline.
func (c *Conn) checkDeadlines() error {
	if c.idle() && c.server.cfg.InUse(c) { // without readMu, because inUse may wait for a store
		c.noteInUse()
	}
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if c.draining {
		return errDraining
	}
	if c.idle() {
		return errIdle
	}
	if c.overdue() {
		return errUnauthenticated
	}
	c.in.shrink()
	c.reply.reset(minBuffer)
	c.rearm()
	return nil
}

// grown reports whether the connection has more memory than an idle connection should.
func (c *Conn) grown() bool { return c.in.grown() || cap(c.reply.buf) > minBuffer }

// idle reports whether the idle timeout has passed and applies.
func (c *Conn) idle() bool {
	timeout := c.server.IdleTimeout()
	return timeout > 0 && !c.exempt() && time.Since(c.idleSince()) >= timeout
}

// exempt reports whether the client waits for pushes. The idle timeout does not apply to it.
func (c *Conn) exempt() bool { return c.awaitsPushes || c.SubscriptionCount() > 0 }

// rearm sets the read deadline between commands. The deadline is the earliest of the idle timeout,
// AuthTimeout and the check of a grown buffer. Activity of the client does not move the deadline,
// because that would reset a timer for each batch. When the deadline passes, checkDeadlines finds
// that the client was active. The caller holds c.readMu.
func (c *Conn) rearm() {
	if c.draining {
		c.interruptLocked()
		return
	}
	var next time.Time
	if idle := c.server.IdleTimeout(); idle > 0 {
		next = c.idleSince().Add(idle)
		if c.exempt() {
			next = time.Now().Add(idle)
		}
	}
	if c.in.checks = c.grown(); c.in.checks {
		if check := time.Now().Add(shrinkCheckEvery); next.IsZero() || check.Before(next) {
			next = check
		}
	}
	// Activity does not extend AuthTimeout. Otherwise a client that sends a byte now and then could
	// stay for ever.
	if by := c.authDeadline(); !by.IsZero() && (next.IsZero() || by.Before(next)) {
		next = by
	}
	c.readUntil(next)
}
