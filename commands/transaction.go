package commands

import "slices"

// transaction is what MULTI has queued on a connection.
type transaction struct {
	queue  []queuedCommand
	bytes  int
	broken bool // a command was refused: EXEC will not run the others
}

type queuedCommand struct {
	entry *entry
	args  [][]byte
}

// The most that a transaction may hold in memory: what MULTI queues, and what
// EXEC has replied when it runs no further command, since its array cannot be
// sent in parts.
const (
	maxQueuedCommands = 10000
	maxQueuedBytes    = 8 << 20
	maxExecReply      = 16 << 20

	// argumentOverhead is what an argument costs besides its bytes: its slice, and
	// what the allocator rounds up.
	argumentOverhead = 40
)

const errExecReply replyError = "ERR not executed: the replies of this transaction are too large"

func (c *client) multi([][]byte) {
	if c.tx != nil {
		c.fail(replyError("ERR MULTI calls can not be nested"))
		return
	}
	c.tx = new(transaction)
	c.queued.Store(0)
	c.w.Simple("OK")
}

// enqueue keeps a command for EXEC.
func (c *client) enqueue(e *entry, args [][]byte) {
	size := len(args) * argumentOverhead
	for _, a := range args {
		size += len(a)
	}
	if len(c.tx.queue) == maxQueuedCommands || c.tx.bytes+size > maxQueuedBytes {
		c.reject(e, replyErrorf("ERR transaction too large: at most %d commands and %d bytes", maxQueuedCommands, maxQueuedBytes))
		return
	}
	// The arguments live in the connection's buffer, which moves on.
	kept := make([][]byte, len(args))
	for i, a := range args {
		kept[i] = slices.Clone(a)
	}
	c.tx.queue = append(c.tx.queue, queuedCommand{e, kept})
	c.tx.bytes += size
	c.queued.Store(int32(len(c.tx.queue)))
	c.w.Simple("QUEUED")
}

func (c *client) discard([][]byte) {
	if c.tx == nil {
		c.fail(replyError("ERR DISCARD without MULTI"))
		return
	}
	c.endTransaction()
	c.w.Simple("OK")
}

// exec runs what was queued and replies with the array of their replies. Each
// command is atomic, as everywhere; other clients' may come in between.
func (c *client) exec(args [][]byte) {
	defer c.x.monitors.feed(c, args) // after its commands, as in Redis
	tx := c.tx
	if tx == nil {
		c.fail(replyError("ERR EXEC without MULTI"))
		return
	}
	c.endTransaction()
	if tx.broken {
		c.fail(replyError("EXECABORT Transaction discarded because of previous errors."))
		return
	}
	c.executing = true
	start := c.w.Len()
	c.w.Array(len(tx.queue))
	for _, q := range tx.queue {
		// What came before in the transaction may have changed what is allowed.
		err := c.admit(q.entry)
		if c.w.Len()-start > maxExecReply {
			err = errExecReply
		}
		if err != nil {
			c.reject(q.entry, err)
			continue
		}
		c.run(q.entry, q.args)
	}
	c.executing = false
	c.failed, c.parked = false, 0 // they were the inner commands'
}

// unwatch has nothing to forget, since there is no WATCH; clients send it by habit.
func (c *client) unwatch([][]byte) { c.w.Simple("OK") }

func (c *client) endTransaction() {
	c.tx = nil
	c.queued.Store(-1)
}
