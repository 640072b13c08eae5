package commands

import (
	"errors"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

var transactionCommands = []command{
	{
		name: "discard", arity: 1, flags: control | fast | allowBusy | immediate, categories: catTransaction,
		group: "transactions", since: "2.0.0", run: (*client).discard,
		summary: "Discard all commands issued after MULTI",
	},
	{
		name: "exec", arity: 1, flags: control | skipSlowlog | immediate | unmonitored, categories: catTransaction,
		group: "transactions", since: "1.2.0", run: (*client).exec,
		summary: "Execute all commands issued after MULTI, in one step unless SIMBA.* is among them; no command blocks",
	},
	{
		name: "multi", arity: 1, flags: control | fast | allowBusy | immediate, categories: catTransaction,
		group: "transactions", since: "1.2.0", run: (*client).multi,
		summary: "Mark the start of a transaction block",
	},
}

const errExecReply replyError = "ERR not executed: the replies of this transaction are too large"

func (c *client) multi([][]byte) error {
	if c.tx != nil {
		return replyError("ERR MULTI calls can not be nested")
	}
	c.tx = idleTransactions.Get().(*transaction)
	c.queued.Store(0)
	c.w.Simple("OK")
	return nil
}

func (c *client) enqueue(e *entry, args [][]byte) {
	size := len(args) * argumentOverhead
	for _, a := range args {
		size += len(a)
	}
	if len(c.tx.queue) == maxQueuedCommands || c.tx.bytes+size > maxQueuedBytes {
		c.reject(e, replyErrorf("ERR transaction too large: at most %d commands and %d bytes", maxQueuedCommands, maxQueuedBytes))
		return
	}
	c.tx.queue = append(c.tx.queue, queuedCommand{e, c.tx.pack(args)})
	c.tx.bytes += size
	c.tx.grows = c.tx.grows || e.has(denyoom)
	c.queued.Store(int32(len(c.tx.queue)))
	c.w.Simple("QUEUED")
}

func (c *client) discard([][]byte) error {
	if c.tx == nil {
		return replyError("ERR DISCARD without MULTI")
	}
	defer c.tx.recycle()
	c.endTransaction()
	c.w.Simple("OK")
	return nil
}

func (c *client) endTransaction() {
	c.tx = nil
	c.queued.Store(-1)
	c.forgetWatch()
}

// exec runs the queued commands and replies with the array of their replies. If all are commands of
// the keyspace, they run in one transaction. Otherwise each runs alone, and commands of other
// clients may run in between.
func (c *client) exec(args [][]byte) error {
	defer c.x.monitors.feed(c, args) // MONITOR shows EXEC after its commands, as in Redis
	tx, watched := c.tx, c.watched
	if tx == nil {
		return replyError("ERR EXEC without MULTI")
	}
	defer tx.recycle()
	c.watched = nil
	defer c.unwatchAll(watched)
	c.endTransaction()
	if tx.broken {
		return replyError("EXECABORT Transaction discarded because of previous errors.")
	}
	run := c.execEach
	if c.x.keyspace != nil && tx.keyed() {
		run = c.execKeyed
	}
	err := run(tx, watched)
	if errors.Is(err, errWatchedChanged) {
		c.nullArray()
		return nil
	}
	return err
}

// execEach runs each command alone. It runs none if a watched key has changed.
func (c *client) execEach(tx *transaction, watched watches) error {
	if len(watched) > 0 {
		err := c.transact(nil, func(t *keyTx) error { return t.checkWatched(watched) })
		if err != nil {
			return err
		}
	}
	c.executing = true
	start, parked := c.w.Len(), time.Duration(0)
	c.w.Array(len(tx.queue))
	for _, q := range tx.queue {
		args := tx.unpack(q)
		// An earlier command of the transaction may have changed the rules.
		err := c.admit(q.entry, args)
		if c.w.Len()-start > maxExecReply {
			err = errExecReply
		}
		if err != nil {
			c.reject(q.entry, err)
			continue
		}
		c.run(q.entry, args)
		c.yield()
		parked += c.parked
	}
	c.executing = false
	c.parked = parked // run has set c.parked for the last command only
	return nil
}

// execKeyed runs the commands in one transaction. It runs none if a watched key has changed.
func (c *client) execKeyed(tx *transaction, watched watches) error {
	err := c.transact(nil, func(t *keyTx) error {
		if err := t.checkWatched(watched); err != nil {
			return err
		}
		return t.runAll(tx)
	})
	if err == nil {
		c.executed(tx)
	}
	return err
}

// executed records the commands of an EXEC in the statistics and logs. execKeyed calls it after the
// transaction, because a transaction may run several times.
func (c *client) executed(tx *transaction) {
	for i, q := range tx.queue {
		call := &tx.calls[i]
		if call.err != nil {
			c.x.errors.add(call.err)
			c.noteDenial(call.err, "multi")
			if errors.Is(call.err, errExecReply) || errors.As(call.err, new(*denial)) {
				q.entry.tally.rejected.Add(1)
				continue
			}
		}
		args := tx.unpack(q)
		if !q.entry.has(secret | unmonitored) {
			c.x.monitors.feed(c, args)
		}
		c.record(q.entry, args, call.took, call.err != nil)
	}
}

// nullArray writes the reply of EXEC if a watched key has changed.
func (c *client) nullArray() {
	if c.w.Proto() == 3 {
		c.w.Null()
		return
	}
	c.w.Array(-1)
}

type execution struct {
	took   time.Duration
	err    error // nil = the command succeeded; else its reply
	denied int   // if the command is a script: how many of its calls the rules denied
}

// maxTorn is how many scripts of one EXEC may fail after a change. After each such failure, all
// commands before the script run again.
const maxTorn = 16

const errTorn replyError = "ERR nothing executed: too many scripts of this transaction failed after a change"

// runAll runs the commands of an EXEC and replies with the array of their replies. After a command
// that fails, the next commands still run, as in Redis.
func (t *keyTx) runAll(tx *transaction) error {
	tx.calls = slices.Grow(tx.calls[:0], len(tx.queue))[:len(tx.queue)]
	start, torn := t.w.Len(), 0
	for from := 0; ; {
		i := t.runSome(tx, from)
		switch {
		case t.TooLarge():
			return simba.ErrTooLarge
		case i == len(tx.queue):
			return nil
		}
		// Script i has failed after a change. Discard drops all changes of the transaction, so the
		// commands before i run again. They have the same results, because the reads and the time
		// stay the same.
		if torn++; torn > maxTorn {
			return errTorn
		}
		t.Discard()
		t.torn = false
		t.w.Truncate(start)
		from = i + 1
	}
}

func (t *keyTx) mayRun(e *entry, args [][]byte) error {
	if d := e.deny(t.user, args); d != nil {
		return d.inExec()
	}
	return nil
}

// runSome runs the commands until one leaves the transaction torn (t.torn) or too large. It returns
// the index of this command, or the number of commands. ran is how many commands an earlier call
// has run. If one of these failed, runSome does not run it again, and only repeats its error.
func (t *keyTx) runSome(tx *transaction, ran int) int {
	start, ended, parked := t.w.Len(), t.c.x.age(), t.c.parked
	t.denials.run = 0
	t.w.Array(len(tx.queue))
	for i, q := range tx.queue {
		t.yield()
		from, call := t.w.Len(), &tx.calls[i]
		switch {
		case i < ran && call.err != nil:
			t.denials.run += call.denied
		case from-start > maxExecReply:
			call.err = errExecReply
		default:
			args, before := tx.unpack(q), t.denials.run
			if call.err = t.mayRun(q.entry, args); call.err == nil {
				call.err = q.entry.keyed(t, args)
			}
			call.denied = t.denials.run - before
			now := t.c.x.age()
			call.took = now - ended - (t.c.parked - parked)
			ended, parked = now, t.c.parked
		}
		if t.torn || t.TooLarge() {
			return i
		}
		if call.err != nil {
			t.w.Truncate(from)
			t.w.Error(wireText(call.err))
		}
	}
	return len(tx.queue)
}
