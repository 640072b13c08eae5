package resp

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"time"
)

// linger bounds how long a client that broke the protocol is listened to, so that
// it can read why.
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 4 << 20
)

// serve reads and executes commands until the connection ends.
func (c *Conn) serve() {
	if err := c.handshake(); err != nil {
		c.fail(err)
	} else {
		c.server.handler.Opened(c)
	}
	c.park.Lock()
	c.rearm()
	c.park.Unlock()

	for c.err == nil && !c.closing {
		if err := c.read(); err != nil {
			c.fail(err)
			break
		}
		c.batch()
	}
	c.end()
}

// fail records why the connection ends.
func (c *Conn) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// read waits until the client has sent something.
func (c *Conn) read() error {
	if c.grown() && !c.shrinking {
		c.park.Lock()
		c.rearm()
		c.park.Unlock()
	}
	for {
		err := c.fill(c.in.space)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := c.lookAround(); err != nil {
			return err
		}
	}
}

// fill reads once into the room that space makes.
func (c *Conn) fill(space func() ([]byte, error)) error {
	room, err := space()
	if err != nil {
		return err
	}
	if c.sock != nil { // without a poller a read that finds something there lets nobody run
		c.turn = 0
	}
	n, err := c.stream.Read(room)
	if n == 0 {
		return err
	}
	c.in.feed(n)
	c.noteBuffers()
	c.touch()
	c.server.bytesIn.Add(int64(n))
	return nil
}

// batch executes the complete commands in the buffer and sends their replies.
func (c *Conn) batch() {
	served := 0
	looked := c.in.start
	for c.err == nil && !c.closing && !c.closed.Load() {
		anonymous := c.unauthenticated()
		args, err := c.in.next(anonymous)
		if err != nil {
			c.refuse(err)
			return
		}
		if args == nil {
			break
		}
		if anonymous && c.overdue() { // a batch of commands that wait takes long
			c.Flush()
			c.fail(errAnonymous)
			return
		}
		if !c.polled() || served > 0 && c.in.start-looked > lookBytes {
			looked = c.in.start
			c.Yield()
		}
		c.execute(args)
		served++
		c.awaitPushes()
		if c.reply.Len() >= c.server.limits.ReplyBatch {
			c.Flush()
		}
	}
	if served > 0 {
		c.noteBuffers()
		c.Flush()
	}
}

// execute has one command served and applies the reply mode to what it replied.
func (c *Conn) execute(args [][]byte) {
	c.command = c.reply.Len()
	c.holds, c.confirms = false, false
	if c.mode == ReplySkipNext {
		c.mode = replySkip
	}
	c.server.handler.Serve(c, args)
	c.mute()
	if c.mode == replySkip {
		c.mode = ReplyOn
	}
}

// mute drops what the command being executed replied if its client wants no
// replies. Frames that confirm a subscription are sent all the same.
func (c *Conn) mute() {
	if c.mode != ReplyOn && !c.confirms {
		c.reply.Truncate(c.command)
	}
}

// refuse ends a connection that does not keep to the protocol: it is told why,
// after the replies to the commands before.
func (c *Conn) refuse(err error) {
	c.command, c.confirms = c.reply.Len(), false // what the command before confirmed is sent
	if text := protocolError(""); errors.As(err, &text) {
		c.reply.Error("ERR " + text.Error())
	}
	c.Flush()
	c.fail(err)
	c.linger()
}

// linger reads on for a moment after a half close. To close a socket with unread
// bytes resets it, and the client might lose the reply that says what was wrong.
func (c *Conn) linger() {
	c.farewell()
	if !c.wire.closeWrite() {
		return
	}
	c.park.Lock()
	if !c.draining {
		c.readUntil(time.Now().Add(lingerTime))
	}
	c.park.Unlock()
	_, _ = io.CopyN(io.Discard, c.wire.Conn, lingerBytes) // ends by an error, or by the limit
}

// end closes the connection and gives everything back that belongs to it.
func (c *Conn) end() {
	c.Detach()
	c.server.broker.leave(c)
	if !errors.Is(c.err, errDraining) {
		c.farewell()
		c.Close() // lets a pusher that hangs in write go
	}
	c.drainPushes()
	c.farewell()
	c.Close()
	c.logEnd()
	c.server.handler.Closed(c)
	c.server.remove(c)
}

func (c *Conn) logEnd() {
	level, why := slog.LevelDebug, "connection closed"
	switch {
	case c.push.wasCut():
		level, why = slog.LevelWarn, "client cut: it does not take what it is pushed"
	case errors.Is(c.err, errHandshake):
		// One that says nothing is a probe of a load balancer, mostly.
		if !errors.Is(c.err, io.EOF) && c.server.handshakes.due() {
			level = slog.LevelWarn
		}
		why = "client cut: its TLS handshake failed"
	case errors.Is(c.err, errTLSHere) && c.server.foreignTLS.due():
		level, why = slog.LevelWarn, "client cut: it speaks TLS to the plain port"
	case errors.Is(c.err, os.ErrDeadlineExceeded):
		level, why = slog.LevelWarn, "client cut: it does not take its replies"
	case errors.Is(c.err, errCrossProtocol) && c.server.crossProtocol.due():
		level, why = slog.LevelWarn, "client cut: possible cross-protocol attack"
	case errors.Is(c.err, errFlooded) && c.server.flooded.due():
		level, why = slog.LevelWarn, "client cut: it sent too much while it was blocked"
	case errors.Is(c.err, errAnonymous) && c.server.anonymous.due():
		level, why = slog.LevelWarn, "client cut: it did not authenticate"
	case errors.Is(c.err, errSettle):
		level, why = slog.LevelError, "replies dropped: not settled"
	}
	err := c.err
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = nil
	}
	attrs := []slog.Attr{slog.Uint64("conn", c.id), slog.String("addr", c.remote)}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	c.server.log.LogAttrs(c.ctx, level, why, attrs...)
}
