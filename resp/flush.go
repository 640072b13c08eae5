package resp

import (
	"context"
	"errors"
	"fmt"

	"github.com/simba-resp/simba-resp"
)

var (
	errCommit      = errors.New("commit")
	errNoCommitter = errors.New("the server has no Committer")
)

// RestOn delays the replies of this batch until the change seq is durable. RestOn(0) names no
// change, but the Committer may have notices to send. The server calls the Committer only for a
// batch in which a command called RestOn.
func (c *Conn) RestOn(seq simba.Seq) { c.rests, c.mustCommit = max(c.rests, seq), true }

// Batch returns the number of the current batch, counted from 0. The replies of a batch are sent
// together.
func (c *Conn) Batch() uint64 { return c.batches }

// Flush commits the commands executed so far and sends their replies. On an error it drops the
// replies, and the connection ends when the handler returns.
func (c *Conn) Flush() error {
	c.applyReplyMode()
	if err := c.Commit(); err == nil && c.err == nil {
		c.fail(c.send())
	}
	c.replyStart, c.holdsPushes = 0, false
	c.batches++
	c.reply.reset(2 * batchBuffer)
	return c.err
}

// Commit returns when the changes named by RestOn so far are durable. It sends no reply. After an
// error the connection sends no more replies. A disconnect does not interrupt Commit, because
// notices and wake-ups of other clients depend on it.
func (c *Conn) Commit() error {
	if !c.mustCommit {
		return nil
	}
	seq := c.rests
	c.rests, c.mustCommit = 0, false
	done, err := c.server.committer.TryCommit(seq)
	if !done {
		c.detachInOrder()
		err = c.server.committer.Commit(context.Background(), seq)
	}
	if err != nil {
		c.fail(fmt.Errorf("%w: %w", errCommit, err))
	}
	return err
}

// noCommitter is the Committer if Config.Committer is nil. It refuses changes.
type noCommitter struct{}

func (n noCommitter) Commit(_ context.Context, seq simba.Seq) error {
	_, err := n.TryCommit(seq)
	return err
}

func (noCommitter) TryCommit(seq simba.Seq) (done bool, err error) {
	if seq != 0 {
		return true, errNoCommitter
	}
	return true, nil
}

// send writes the replies. If pushes are held, it also writes those that precede the replies, and
// releases the others.
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

// lockWrites locks c.wmu. It detaches the connection before it waits for a pusher.
func (c *Conn) lockWrites() {
	if !c.wmu.TryLock() {
		c.Detach()
		c.wmu.Lock()
	}
}

// writeReplies is write for the connection's own goroutine: it detaches a polled connection before
// it blocks.
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

// write sends whole frames, in one call unless the client reads slowly. The caller holds c.wmu.
func (c *Conn) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := c.stream.Write(b)
	c.server.bytesOut.Add(int64(n))
	return err
}
