package commands

import (
	"bytes"
	"errors"
	"maps"

	"github.com/simba-resp/simba-resp"
)

var transactionCommands = []command{
	{
		name: "discard", arity: 1, flags: control | fast | allowBusy | immediate, since: "2.0.0", run: (*client).discard,
		summary: "Discard all commands issued after MULTI",
	},
	{
		name: "exec", arity: 1, flags: control | skipSlowlog | immediate | unmonitored, since: "1.2.0", run: (*client).exec,
		summary: "Execute all commands issued after MULTI, in one step unless SIMBA.* is among them; no command blocks",
	},
	{
		name: "multi", arity: 1, flags: control | fast | allowBusy | immediate, since: "1.2.0", run: (*client).beginMulti,
		summary: "Mark the start of a transaction block",
	},
	{
		name: "unwatch", arity: 1, flags: control | fast | allowBusy, since: "2.2.0", run: withoutTx(unwatch), keyed: unwatch,
		summary: "Forget about all watched keys",
	},
	{
		name: "watch", arity: -2, flags: control | fast | allowBusy | immediate, keys: manyKeys(existence),
		since: "2.2.0", run: (*client).watchKeys,
		summary: "Watch the given keys to determine execution of the MULTI/EXEC block",
		args:    "key [key ...]",
	},
}

const errExecReply replyError = "ERR not executed: the replies of this transaction are too large"

func (c *client) beginMulti([][]byte) error {
	if c.multi.tx != nil {
		return replyError("ERR MULTI calls can not be nested")
	}
	c.multi.tx = new(transaction)
	c.multi.queued.Store(0)
	c.w.Simple("OK")
	return nil
}

func (c *client) enqueue(e *entry, args [][]byte) {
	copied := bytes.Join(args, nil) // the arguments are in the connection's buffer
	size := len(args)*argumentOverhead + len(copied)
	if len(c.multi.tx.queue) == maxQueuedCommands || c.multi.tx.bytes+size > maxQueuedBytes {
		c.reject(e, replyErrorf("ERR transaction too large: at most %d commands and %d bytes", maxQueuedCommands, maxQueuedBytes))
		return
	}
	q := queuedCommand{e, make([][]byte, len(args))}
	for i, a := range args {
		q.args[i], copied = copied[:len(a):len(a)], copied[len(a):]
	}
	c.multi.tx.queue = append(c.multi.tx.queue, q)
	c.multi.tx.bytes += size
	c.multi.tx.grows = c.multi.tx.grows || e.has(denyoom)
	c.multi.queued.Store(int32(len(c.multi.tx.queue)))
	c.w.Simple("QUEUED")
}

func (c *client) discard([][]byte) error {
	if c.multi.tx == nil {
		return replyError("ERR DISCARD without MULTI")
	}
	c.multi.end(c.x.store.keyspace)
	c.w.Simple("OK")
	return nil
}

// exec runs the queued commands and replies with the array of their replies. If all are commands of
// the keyspace, they run in one transaction. Otherwise each runs alone, and commands of other
// clients may run in between.
func (c *client) exec([][]byte) error {
	defer c.x.observers.monitors.feed(&c.call) // MONITOR shows EXEC after its commands, as in Redis
	tx, watched := c.multi.tx, c.multi.watched
	if tx == nil {
		return replyError("ERR EXEC without MULTI")
	}
	c.multi.watched = nil
	defer watched.forget(c.x.store.keyspace)
	c.multi.end(c.x.store.keyspace)
	if tx.broken {
		return replyError("EXECABORT Transaction discarded because of previous errors.")
	}
	run := c.execEach
	if c.x.store.keyspace != nil && tx.keyed() {
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
	c.multi.executing = true
	exec, start := c.call, c.w.Len()
	c.w.Array(len(tx.queue))
	for _, q := range tx.queue {
		// An earlier command of the transaction may have changed the rules.
		err := c.admit(q.entry, q.args)
		if c.w.Len()-start > maxExecReply {
			err = errExecReply
		}
		if err != nil {
			c.reject(q.entry, err)
			continue
		}
		c.run(q.entry, q.args)
		c.yield()
		exec.parked += c.call.parked
	}
	c.multi.executing = false
	c.call = exec
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

// executed tells the observers of the commands of an EXEC. execKeyed calls it after the transaction,
// because a transaction may run several times.
func (c *client) executed(tx *transaction) {
	exec := c.call // a call of its own for each command would be garbage
	defer func() { c.call = exec }()
	for i, q := range tx.queue {
		done := &tx.calls[i]
		if done.err != nil {
			c.x.observers.stats.errors.add(done.err)
			c.noteDenial(done.err, "multi")
			if errors.Is(done.err, errExecReply) || errors.As(done.err, new(*denial)) {
				q.entry.tally.rejected.Add(1)
				continue
			}
		}
		c.call.entry, c.call.args, c.call.took, c.call.err = q.entry, q.args, done.took, done.err
		c.x.observers.begins(&c.call)
		c.x.observers.ended(&c.call)
	}
}

// nullArray writes the reply of EXEC if a watched key has changed: null, and in RESP2 a null array.
func (c *client) nullArray() {
	if c.w.Proto() == 3 {
		c.w.Null()
		return
	}
	c.w.Array(-1)
}

// maxTorn is how many scripts of one EXEC may fail after a change. After each such failure, all
// commands before the script run again.
const maxTorn = 16

const errTorn replyError = "ERR nothing executed: too many scripts of this transaction failed after a change"

// runAll runs the commands of an EXEC and replies with the array of their replies. After a command
// that fails, the next commands still run, as in Redis.
func (t *keyTx) runAll(tx *transaction) error {
	tx.calls = make([]execution, len(tx.queue))
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

// runSome runs the commands until one leaves the transaction torn (t.torn) or too large. It returns
// the index of this command, or the number of commands. ran is how many commands an earlier call
// has run. If one of these failed, runSome does not run it again, and only repeats its error.
func (t *keyTx) runSome(tx *transaction, ran int) int {
	start, ended, parked := t.w.Len(), t.c.x.age(), t.c.call.parked
	t.w.Array(len(tx.queue))
	for i, q := range tx.queue {
		t.yield()
		from, call := t.w.Len(), &tx.calls[i]
		switch {
		case i < ran && call.err != nil:
		case from-start > maxExecReply:
			call.err = errExecReply
		default:
			if d := q.entry.deny(t.user, q.args); d != nil {
				d.inExec = true
				call.err = d
			} else {
				call.err = q.entry.keyed(t, q.args)
			}
			now := t.c.x.age()
			call.took = now - ended - (t.c.call.parked - parked)
			ended, parked = now, t.c.call.parked
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

// maxWatched is how many keys a connection may watch. The engine keeps a counter for each key.
const maxWatched = 1000

func (c *client) watchKeys(args [][]byte) error {
	space, err := c.keyspace()
	switch {
	case err != nil:
		return err
	case c.multi.tx != nil:
		return replyError("ERR WATCH inside MULTI is not allowed")
	}
	added := make(watches)
	for _, a := range args[1:] {
		k := parseKey(a)
		if _, ok := c.multi.watched[k]; !ok {
			added[k] = 0
		}
	}
	if len(c.multi.watched)+len(added) > maxWatched {
		return replyErrorf("ERR too many watched keys: a connection may watch at most %d", maxWatched)
	}
	for k := range added {
		added[k] = space.Watch(k.Mutex, isQueue(k))
	}
	maps.Copy(added, c.multi.watched)
	c.multi.watched = added
	c.conn.ReplyAfter(0) // Watch may have ended a lease that had expired
	c.w.Simple("OK")
	return nil
}

// unwatch has no effect inside EXEC, which has already ended every WATCH.
func unwatch(t *keyTx, _ [][]byte) error {
	t.c.multi.watched.forget(t.c.x.store.keyspace)
	t.c.multi.watched = nil
	t.w.Simple("OK")
	return nil
}

// errWatchedChanged is returned when a watched key has changed. EXEC then replies with a null
// array.
var errWatchedChanged = errors.New("a watched key has changed")

// checkWatched returns errWatchedChanged if a watched key has changed. If a watched key changes
// after this check and before the commit, the transaction conflicts and runs again.
func (t *keyTx) checkWatched(watched watches) error {
	for k, version := range watched {
		if !t.Unchanged(k.Mutex, isQueue(k), version) {
			return errWatchedChanged
		}
	}
	return nil
}
