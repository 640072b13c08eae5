package commands

import (
	"errors"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// keyTx is the transaction in which a command of the keyspace runs: its own, or one that it
// shares with the other commands of an EXEC or of a script.
type keyTx struct {
	simba.Tx
	x    *Commands
	w    *resp.Writer // where the reply goes
	c    *client      // who asks
	user *access.User // who that is, by the rules when the transaction began
	conn *resp.Conn   // of the client

	// torn says that a script has failed after it changed something, which nobody must see.
	torn bool
	// final says that a script was stopped: not even a conflict makes it run again.
	final bool

	steps int  // counted by step
	again bool // it conflicted with others' before
}

// giveWay is the client's, but for who begins anew: what others change meanwhile would have it conflict once more.
func (t *keyTx) giveWay() {
	if !t.again {
		t.c.giveWay()
	}
}

// step is called in what may be done thousands of times: others have the processor in between.
func (t *keyTx) step() {
	if t.steps++; t.steps%64 == 0 {
		t.giveWay()
	}
}

// Lock is that of the Tx, which a command may call for each of a thousand keys.
func (t *keyTx) Lock(mutex string) simba.Lock {
	t.step()
	return t.Tx.Lock(mutex)
}

// Queue is that of the Tx. It copies all of the queue, however long that is, so the client's connection is detached before.
func (t *keyTx) Queue(mutex string) []simba.Place {
	t.conn.Detach()
	return t.Tx.Queue(mutex)
}

// Place is that of the Tx, which looks through the queue.
func (t *keyTx) Place(mutex, contender string) (simba.Place, bool) {
	t.conn.Detach()
	return t.Tx.Place(mutex, contender)
}

// keyedCommand runs a command of the keyspace: it parses every argument, reads, changes, and
// writes one reply to t.w; or it returns an error for the reply, and has changed nothing
// (a script, which may have, sets t.torn). It may be called again with the same arguments in
// another transaction, so it changes nothing but by t.
type keyedCommand func(t *keyTx, args [][]byte) error

// maxAttempts is how often a transaction is tried that conflicts with other clients'.
const maxAttempts = 100

const errContended replyError = "TRYAGAIN the keys change too often"

// keyspace returns the keys of the engine, or why it has none.
func (c *client) keyspace() (simba.Keyspace, error) {
	if c.x.keyspace == nil {
		return nil, replyErrorf("ERR '%s' is served by the embedded engine only, and this server keeps its mutexes in %s", c.running.full, c.x.info.Engine)
	}
	c.conn.RestOn(0)
	return c.x.keyspace, nil
}

// runKeyed runs one command in a transaction of its own.
func (c *client) runKeyed(args [][]byte) {
	err := c.transact(func(t *keyTx) error {
		if c.full && t.mayGrow(c.running, args) {
			return simba.ErrOutOfMemory
		}
		return c.running.keyed(t, args)
	})
	if err != nil {
		c.fail(err)
	}
}

// transact runs do in a transaction until it does not conflict with others. What do has
// written is kept only then.
func (c *client) transact(do func(t *keyTx) error) error {
	space, err := c.keyspace()
	if err != nil {
		return err
	}
	start := c.w.Len()
	for i := range maxAttempts {
		if i > 0 {
			c.giveWay() // while nothing is read that could change
		}
		err = c.attempt(space.Begin(), i > 0, do)
		if !errors.Is(err, simba.ErrConflict) {
			break
		}
		c.w.Truncate(start)
		err = errContended
	}
	if err != nil {
		c.w.Truncate(start)
	}
	return err
}

// attempt runs do in tx and commits it, or nothing of it if do fails.
func (c *client) attempt(tx simba.Tx, again bool, do func(t *keyTx) error) error {
	defer tx.Close()
	user := c.user()
	if user == nil { // it was removed this moment
		c.conn.CloseAfterReply()
		return errUserGone
	}
	t := &keyTx{Tx: tx, x: c.x, w: c.w, c: c, user: user, conn: c.conn, again: again}
	failed := do(t)
	if m, ok := t.DroppedToken(); ok && failed == nil {
		failed = replyErrorf("ERR '%s' cannot be deleted: its mutex is owned, and keeps its token", shorten([]byte(simba.Key{Mutex: m, Part: simba.KeyToken}.String())))
	}
	if failed != nil {
		tx.Discard() // the error tells of what was read
	}
	seq, err := tx.Commit(c.conn.Context())
	c.conn.RestOn(seq)
	if err != nil && (failed == nil || !t.final) {
		return err
	}
	return failed
}

// resume goes on with a transaction that has only watched keys so far. It returns ErrConflict,
// and what do did is nothing, if one of them has changed.
func (c *client) resume(watched simba.Tx, do func(t *keyTx) error) error {
	start := c.w.Len()
	alive := watched.Resume()
	if !alive {
		do = func(*keyTx) error { return nil } // Commit says on what the failure rests
	}
	err := c.attempt(watched, false, do)
	if err == nil && !alive {
		err = simba.ErrConflict
	}
	if err != nil {
		c.w.Truncate(start)
	}
	return err
}

// execution is how a command of an EXEC went.
type execution struct {
	took time.Duration
	err  error // its reply
}

// maxTorn is how many scripts of one EXEC may fail after they have changed something: all
// that ran before has to run again for each.
const maxTorn = 16

const errTorn replyError = "ERR nothing executed: too many scripts of this transaction failed half done"

// runAll runs the commands of an EXEC and replies with the array of their replies. A command
// that fails has an error for its reply, and the others go on, as in Redis.
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
		// What the script did before it failed must go, and the transaction can only forget
		// everything. The commands before run again, with the same result: what they read
		// and the time are the same.
		if torn++; torn > maxTorn {
			return errTorn
		}
		t.Discard()
		t.torn = false
		t.w.Truncate(start)
		from = i + 1
	}
}

// mayRun says why a command that was queued must not run any more.
func (t *keyTx) mayRun(e *entry, args [][]byte) error {
	if d := e.deny(t.user, args); d != nil {
		return d.inExec()
	}
	return nil
}

// runSome runs the commands until one leaves the transaction torn, or too large, and returns its index.
// Of those before known it knows which ones fail: they don't run.
func (t *keyTx) runSome(tx *transaction, known int) int {
	start, ended, parked := t.w.Len(), t.x.age(), t.c.parked
	t.w.Array(len(tx.queue))
	for i, q := range tx.queue {
		t.giveWay()
		from, call := t.w.Len(), &tx.calls[i]
		switch {
		case i < known && call.err != nil:
		case from-start > maxExecReply:
			call.err = errExecReply
		default:
			args := tx.unpack(q)
			if call.err = t.mayRun(q.entry, args); call.err == nil {
				call.err = q.entry.keyed(t, args)
			}
			now := t.x.age()
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
