package resp

import (
	"errors"
	"fmt"

	"github.com/simba-resp/simba-resp/bugs"
)

var errSettle = errors.New("settle")

// Flush settles what was executed so far and sends the replies. On an error they
// are dropped, and the connection ends when the handler returns.
func (c *Conn) Flush() error {
	c.Rest()
	c.mute()
	if bugs.On(bugs.ReplyBeforeFsync) {
		c.fail(c.send())
		c.reply.Truncate(0)
	}
	if err := c.settle(); err != nil {
		c.fail(fmt.Errorf("%w: %w", errSettle, err))
	}
	if c.err == nil {
		c.fail(c.send())
	}
	c.command, c.holds = 0, false
	c.reply.reset(2 * batchBuffer)
	return c.err
}

func (c *Conn) settle() error {
	if c.sock != nil {
		return c.server.handler.Settle(c)
	}
	began := c.age()
	defer c.waitedSince(began)
	return c.server.handler.Settle(c)
}

// send writes the replies, between the pushes that came before them, and lets go
// the pushes that came after.
func (c *Conn) send() error {
	if !c.push.holding() {
		if c.reply.Len() == 0 {
			return nil
		}
		c.lockWrites()
		defer c.wmu.Unlock()
		return c.writeReplies(c.reply.Bytes())
	}
	c.lockWrites()
	err := c.writeReplies(c.push.splice(c.reply.Bytes()))
	c.wmu.Unlock()
	c.release()
	return err
}

// lockWrites takes c.wmu, for which who waits for a slow client may keep others waiting.
func (c *Conn) lockWrites() {
	if !c.wmu.TryLock() {
		c.leave()
		c.wmu.Lock()
	}
}

// writeReplies is write for the connection's own goroutine.
func (c *Conn) writeReplies(b []byte) error {
	if c.sock == nil || len(b) == 0 {
		return c.write(b)
	}
	n, err := c.sock.writeNow(b)
	c.server.bytesOut.Add(int64(n))
	if err != nil || n == len(b) {
		return err
	}
	c.leave()
	return c.write(b[n:])
}

// write sends whole frames, in one call unless the client takes them slowly. The
// caller holds c.wmu.
func (c *Conn) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := c.stream.Write(b)
	c.server.bytesOut.Add(int64(n))
	return err
}
