package resp

import (
	"errors"
	"fmt"

	"github.com/simba-resp/simba-resp"
)

var errCommit = errors.New("commit")

// replies are the replies of a batch, which the server sends together.
type replies struct {
	reply       Writer
	start       int       // where the reply to the current command begins in reply.buf
	holdsPushes bool      // the current command holds pushes back, see Conn.HoldPushes
	after       simba.Seq // the replies wait until this Seq is durable
	mustCommit  bool      // ReplyAfter was called in this batch
	batches     uint64    // number of completed batches
}

// Reply returns the writer of replies. The server sends the replies at the end of the batch, or at
// Flush. The handler must complete a reply before it calls Flush or Await.
func (r *replies) Reply() *Writer { return &r.reply }

// ReplyAfter delays the replies of this batch until the change seq is durable. ReplyAfter(0) names no
// change, but the Committer may have notices to send. The server calls the Committer only for a
// batch in which a command called ReplyAfter.
func (r *replies) ReplyAfter(seq simba.Seq) { r.after, r.mustCommit = max(r.after, seq), true }

// Batch returns the number of the current batch, counted from 0. The replies of a batch are sent
// together.
func (r *replies) Batch() uint64 { return r.batches }

// beginReply begins the reply to a command.
func (r *replies) beginReply() { r.start, r.holdsPushes = r.reply.Len(), false }

// nextBatch begins a batch after the replies were sent or dropped.
func (r *replies) nextBatch() {
	r.reply.reset(2 * batchBuffer)
	r.batches++
	r.beginReply()
}

// Flush commits the commands executed so far and sends their replies. On an error it drops the
// replies, and the connection ends when the handler returns.
func (c *Conn) Flush() error {
	if err := c.Commit(); err == nil && c.err == nil {
		c.fail(c.send())
	}
	c.nextBatch()
	return c.err
}

// Commit returns when the changes named by ReplyAfter so far are durable. It sends no reply. After an
// error the connection sends no more replies. A disconnect does not interrupt Commit, because
// notices and wake-ups of other clients depend on it.
func (c *Conn) Commit() error {
	if !c.mustCommit {
		return nil
	}
	seq := c.after
	c.after, c.mustCommit = 0, false
	c.FreeSlot()
	err := c.server.cfg.Committer.Commit(seq)
	if err != nil {
		c.fail(fmt.Errorf("%w: %w", errCommit, err))
	}
	return err
}

// send writes the replies. If pushes are held, it also writes those that precede the replies, and
// releases the others.
func (c *Conn) send() error {
	c.FreeSlot()
	if !c.push.holding() {
		if c.reply.Len() == 0 {
			return nil
		}
		c.wmu.Lock()
		defer c.wmu.Unlock()
		return c.write(c.reply.Bytes())
	}
	c.wmu.Lock()
	err := c.write(c.push.splice(c.reply.Bytes()))
	c.wmu.Unlock()
	c.release()
	return err
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
