package resp

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// lingerTime and lingerBytes limit how much linger reads.
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 4 << 20
)

// run serves the connection until it ends.
func (c *Conn) run() {
	if err := c.handshake(); err != nil {
		c.fail(err)
	} else {
		c.server.handler.Opened(c)
	}
	c.readMu.Lock()
	c.rearm()
	c.readMu.Unlock()

	for c.err == nil && !c.closing {
		if err := c.read(); err != nil {
			c.fail(err)
			break
		}
		c.batch()
	}
	c.end()
}

// fail records why the connection ends, if there is no earlier reason.
func (c *Conn) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// read waits until the client has sent something.
func (c *Conn) read() error {
	if c.grown() && !c.in.checks {
		c.readMu.Lock()
		c.rearm()
		c.readMu.Unlock()
	}
	for {
		err := c.fill(c.in.space)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := c.checkDeadlines(); err != nil {
			return err
		}
	}
}

func (c *Conn) fill(space func() ([]byte, error)) error {
	room, err := space()
	if err != nil {
		return err
	}
	began := time.Now()
	n, err := c.stream.Read(room)
	c.hasRead(began)
	if n == 0 {
		return err
	}
	c.in.feed(n)
	c.touch()
	c.server.bytesIn.Add(int64(n))
	return nil
}

// batch executes the complete commands in the buffer and sends their replies.
func (c *Conn) batch() {
	served := 0
	for c.err == nil && !c.closing && !c.closed.Load() {
		unauth := c.unauthenticated()
		args, err := c.in.next(unauth)
		if err != nil {
			c.refuse(err)
			return
		}
		if args == nil {
			break
		}
		if unauth && c.overdue() { // blocking commands of this batch may have taken long
			c.Flush()
			c.fail(errUnauthenticated)
			return
		}
		c.letOthersRun()
		c.beginReply()
		c.server.handler.Execute(c, args)
		c.FreeSlot()
		served++
		c.waitForPushers()
		if c.reply.Len() >= c.server.cfg.ReplyBatch {
			c.Flush()
		}
	}
	if served > 0 {
		c.Flush()
	}
}

// refuse ends a connection that breaks the protocol. It sends the error after the replies to
// earlier commands.
func (c *Conn) refuse(err error) {
	if text := protocolError(""); errors.As(err, &text) {
		c.reply.Error("ERR " + text.Error())
	}
	c.Flush()
	c.fail(err)
	c.linger()
}

// linger ends the stream to the client, and reads and discards input for a moment. If the server
// closed a socket with unread bytes, the kernel would reset the connection. The client might then
// lose the error.
func (c *Conn) linger() {
	c.closeTLS()
	if !c.wire.closeWrite() {
		return
	}
	c.readMu.Lock()
	if !c.draining {
		c.readUntil(time.Now().Add(lingerTime))
	}
	c.readMu.Unlock()
	_, _ = io.CopyN(io.Discard, c.wire.Conn, lingerBytes) // no error matters here
}

func (c *Conn) end() {
	c.server.cfg.Broker.removeConn(c)
	if !errors.Is(c.err, errDraining) {
		c.closeTLS()
		c.Close() // interrupts a pusher's write
	}
	c.drainPushes()
	c.closeTLS()
	c.Close()
	c.logEnd()
	c.server.handler.Closed(c)
	c.server.remove(c)
}

// clientFaults are errors that any client can cause, each with its log line. The server logs a
// warning of each at most once a minute.
var clientFaults = [...]clientFault{
	{errHandshake, "client disconnected: TLS handshake failed"},
	{errPlainPort, "client disconnected: it uses TLS on the plain port"},
	{errCrossProtocol, "client disconnected: possible cross-protocol attack"},
	{errFlooded, "client disconnected: it sent too much while blocked"},
	{errUnauthenticated, "client disconnected: it did not authenticate in time"},
}

type clientFault struct {
	err error
	why string
}

func (c *Conn) logEnd() {
	level, why := slog.LevelDebug, "connection closed"
	fault := slices.IndexFunc(clientFaults[:], func(f clientFault) bool { return errors.Is(c.err, f.err) })
	switch {
	case c.push.isSlow():
		level, why = slog.LevelWarn, "client disconnected: it does not read its messages"
	case fault >= 0:
		why = clientFaults[fault].why
		// A client that sends nothing in its handshake is usually a load balancer's probe.
		if !errors.Is(c.err, io.EOF) && c.server.warned[fault].due() {
			level = slog.LevelWarn
		}
	case errors.Is(c.err, os.ErrDeadlineExceeded):
		level, why = slog.LevelWarn, "client disconnected: it does not read its replies"
	case errors.Is(c.err, simba.ErrStopped): // for example, another member of the cluster leads now
		why = "replies dropped: the engine has stopped"
	case errors.Is(c.err, errCommit):
		level, why = slog.LevelError, "replies dropped: commit failed"
	}
	err := c.err
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = nil
	}
	attrs := []slog.Attr{slog.Uint64("conn", c.id), slog.String("addr", c.remote)}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	c.server.cfg.Logger.LogAttrs(c.ctx, level, why, attrs...)
}
