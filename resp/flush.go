package resp

import (
	"context"
	"errors"
	"fmt"

	"github.com/simba-resp/simba-resp"
)

var (
	errSettle      = errors.New("settle")
	errNoCommitter = errors.New("the server has no Committer")
)

// RestOn delays the replies of this batch until seq is durable. With 0 they rest on nothing, but the
// Committer is asked: there may be notices to send. A batch without RestOn does not concern it.
func (c *Conn) RestOn(seq simba.Seq) { c.rests, c.settles = max(c.rests, seq), true }

// Batch is the number of the batch of commands that is being executed; the first is 0. The
// replies of a batch are sent together.
func (c *Conn) Batch() uint64 { return c.batches }

// Flush settles what was executed so far and sends the replies. On an error they
// are dropped, and the connection ends when the handler returns.
func (c *Conn) Flush() error {
	c.mute()
	if err := c.Commit(); err == nil && c.err == nil {
		c.fail(c.send())
	}
	c.command, c.holds = 0, false
	c.batches++
	c.reply.reset(2 * batchBuffer)
	return c.err
}

// Commit returns when the changes named by RestOn so far are durable. It sends nothing; after an error
// the connection sends no reply any more. It is not bound to the connection's context: notices and wake-ups of
// others depend on it, also when this client has left.
func (c *Conn) Commit() error {
	if !c.settles {
		return nil
	}
	seq := c.rests
	c.rests, c.settles = 0, false
	done, err := c.server.committer.TryCommit(seq)
	if !done {
		err = c.awaitSettled(seq)
	}
	if err != nil {
		c.fail(fmt.Errorf("%w: %w", errSettle, err))
	}
	return err
}

func (c *Conn) awaitSettled(seq simba.Seq) error {
	began := c.age()
	c.lineUp()
	err := c.server.committer.Commit(context.Background(), seq)
	c.server.settled(c.age() - began)
	return err
}

// durable is the Committer of replies that rest on nothing.
type durable struct{}

func (d durable) Commit(_ context.Context, seq simba.Seq) error {
	_, err := d.TryCommit(seq)
	return err
}

func (durable) TryCommit(seq simba.Seq) (done bool, err error) {
	if seq != 0 {
		return true, errNoCommitter
	}
	return true, nil
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
		c.Detach()
		c.wmu.Lock()
	}
}

// writeReplies is write for the connection's own goroutine.
func (c *Conn) writeReplies(b []byte) error {
	if c.sock == nil || len(b) == 0 {
		return c.write(b)
	}
	n, err := c.sock.WriteNow(b)
	c.server.bytesOut.Add(int64(n))
	if err != nil || n == len(b) {
		return err
	}
	c.Detach()
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
