package commands

import (
	"cmp"
	"errors"
	"strconv"
	"sync"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// keyTx is the transaction in which a command of the keyspace runs. The commands of one EXEC or one
// script share a keyTx.
type keyTx struct {
	simba.Tx
	w    *resp.Writer // for the reply
	c    *client
	user *access.User // with the rules that were in force when this run began

	// torn reports that a script has failed after it changed something. The caller must discard the
	// script's changes.
	torn bool
	// final reports that a script was stopped by force. The script must not run again, even if the
	// transaction conflicts.
	final bool

	scripted bool      // a script runs the commands
	one      bool      // the transaction is an UpdateOne
	oneKey   simba.Key // its key

	steps int  // how often step was called
	again bool // an earlier run of this transaction has conflicted

	// droppedToken reports that a command has called DropToken. Scripts share it with their caller.
	droppedToken *bool
}

// key returns the key of a command on one key, its first argument.
func (t *keyTx) key(args [][]byte) simba.Key {
	if t.one {
		return t.oneKey
	}
	return parseKey(args[1])
}

// yield lets other connections run. A transaction that runs again does not yield, because changes
// by other clients could make it conflict once more. An UpdateOne may not yield.
func (t *keyTx) yield() {
	if !t.again && !t.one {
		t.c.yield()
	}
}

// step counts a key, and yields after every 64 keys. A command that may have thousands of keys
// calls step for each.
func (t *keyTx) step() {
	if t.steps++; t.steps%64 == 0 {
		t.yield()
	}
}

// Lock calls step, because a command may read the locks of many keys.
func (t *keyTx) Lock(mutex string) simba.Lock {
	t.step()
	return t.Tx.Lock(mutex)
}

// keyedCommand runs a command of the keyspace. It writes one reply to t.w, or returns an error,
// which is then the reply. A command with an error has changed nothing, unless t.torn is set. The
// command may run again in another transaction. So all its effects go through t.
type keyedCommand func(t *keyTx, args [][]byte) error

const errContended replyError = "TRYAGAIN the keys change too often"

func (c *client) keyspace() (simba.Keyspace, error) {
	if c.x.store.keyspace == nil {
		return nil, replyErrorf("ERR '%s' is served by the embedded engine only, and this server keeps its mutexes in %s", c.call.entry.full, c.x.cfg.Info.Engine)
	}
	return c.x.store.keyspace, nil
}

func (c *client) runKeyed(args [][]byte) error {
	var one []byte
	if k := c.call.entry.keys; k.first == 1 && (k.last == 1 || k.last < 0 && len(args) == 2) {
		one = args[1]
	}
	return c.transact(one, func(t *keyTx) error {
		if c.permit.full && t.mayGrow(c.call.entry, args) {
			return simba.ErrOutOfMemory
		}
		return c.call.entry.keyed(t, args)
	})
}

// withoutTx returns the run function of a command that needs no transaction outside EXEC and scripts.
// do must not use keyTx.Tx unless the command runs in a transaction.
func withoutTx(do keyedCommand) func(c *client, args [][]byte) error {
	return func(c *client, args [][]byte) error {
		c.noTx = keyTx{w: c.w, c: c, user: c.permit.user}
		return do(&c.noTx, args)
	}
}

// keyUpdate is a call of simba.Keyspace.Update by a client.
type keyUpdate struct {
	t     keyTx
	do    func(t *keyTx) error
	start int   // where the reply begins
	err   error // of the last run

	droppedToken bool
	bound        func(simba.Tx) error // the method value u.run, made once to save allocations
}

// idleUpdates holds ended calls. Later calls reuse their memory.
var idleUpdates = sync.Pool{New: func() any {
	u := new(keyUpdate)
	u.bound = u.run
	return u
}}

// transact runs do in a transaction. If do uses only one key, one is that key, otherwise nil. If do
// may use several keys, transact may run it several times, and keeps only the reply of the last run.
// If the last run fails, transact keeps no reply and returns the error.
func (c *client) transact(one []byte, do func(t *keyTx) error) error {
	space, err := c.keyspace()
	if err != nil {
		return err
	}
	u := idleUpdates.Get().(*keyUpdate)
	defer idleUpdates.Put(u)
	u.do, u.start, u.err = do, c.w.Len(), nil
	u.t = keyTx{w: c.w, c: c, user: c.permit.user, droppedToken: &u.droppedToken}
	var seq simba.Seq
	if one != nil {
		u.t.one, u.t.oneKey = true, parseKey(one)
		seq, err = space.UpdateOne(u.t.oneKey.Mutex, u.bound)
	} else {
		seq, err = space.Update(u.bound)
	}
	c.conn.ReplyAfter(seq)
	switch {
	case u.t.final && u.err != nil:
		err = u.err
	case errors.Is(err, simba.ErrConflict):
		err = errContended
	}
	if err != nil {
		c.w.Truncate(u.start)
	}
	u.do, u.err, u.t = nil, nil, keyTx{}
	return err
}

// run is one run of the transaction. simba.Keyspace.Update calls it again after a conflict.
func (u *keyUpdate) run(tx simba.Tx) error {
	t := &u.t
	if t.again = t.Tx != nil; t.again {
		if t.final {
			// In EXEC u.err is nil, because the script's error is a part of the reply.
			u.err = cmp.Or(u.err, error(errContended))
			return u.err
		}
		t.c.yield() // before this run reads anything
		t.w.Truncate(u.start)
		if t.user = t.c.user(); t.user == nil { // the user has just been removed
			t.c.conn.CloseAfterReply()
			return errUserGone
		}
	}
	t.Tx, t.torn, t.steps = tx, false, 0
	u.droppedToken = false
	if u.err = u.do(t); u.err != nil || !u.droppedToken {
		return u.err
	}
	if m, ok := t.DroppedToken(); ok {
		u.err = replyErrorf("ERR '%s' cannot be deleted: its mutex is owned, and keeps its token", shorten([]byte(simba.Key{Mutex: m, Part: simba.KeyToken}.String())))
	}
	return u.err
}

// viewError returns why a command cannot write to a view of a mutex.
func viewError(args [][]byte, k simba.Key) error {
	switch k.Part {
	case simba.KeyQueue:
		return replyErrorf("ERR '%s' cannot make a lock of '%s': it is the queue of a mutex", nameOf(args), shorten([]byte(k.String())))
	case simba.KeyFence:
		return replyErrorf("ERR '%s' cannot change '%s': it counts the fencing tokens of a mutex, and only INCR does so", nameOf(args), shorten([]byte(k.String())))
	default:
		return replyErrorf("ERR '%s' cannot change '%s': it is the fencing token of the mutex's owner", nameOf(args), shorten([]byte(k.String())))
	}
}

// view returns the token or the counter of tokens as a lock whose owner is the number. A token has
// the expiry of the lease. If the key does not exist, view returns the zero Lock.
func (t *keyTx) view(k simba.Key) simba.Lock {
	n, l := uint64(0), simba.Lock{TTL: simba.Endless}
	switch k.Part {
	case simba.KeyFence:
		n = t.Fence(k.Mutex)
	case simba.KeyToken:
		if n = t.Token(k.Mutex); n != 0 {
			lease := t.Lock(k.Mutex)
			l.TTL, l.EndsAt = lease.TTL, lease.EndsAt
		}
	}
	if n == 0 {
		return simba.Lock{}
	}
	l.Token, l.Owner = n, strconv.FormatUint(n, 10)
	return l
}

const errWrongType replyError = "WRONGTYPE Operation against a key holding the wrong kind of value"

// lookup returns the lock behind a key and whether the key exists. For a queue the lock is zero.
// For a token or the counter of tokens it is the result of view.
func (t *keyTx) lookup(k simba.Key) (l simba.Lock, exists bool) {
	switch k.Part {
	case simba.KeyQueue:
		return l, len(t.Queue(k.Mutex)) > 0
	case simba.KeyLock:
		l = t.Lock(k.Mutex)
	default:
		l = t.view(k)
	}
	return l, l.Exists()
}

// str returns the lock behind a string key, the zero Lock if the key does not exist.
func (t *keyTx) str(k simba.Key) (simba.Lock, error) {
	l, exists := t.lookup(k)
	if exists && !isString(k, l) {
		return simba.Lock{}, errWrongType
	}
	return l, nil
}

// isString reports whether an existing key is a string. l is the lock behind the key.
func isString(k simba.Key, l simba.Lock) bool { return k.Part != simba.KeyQueue && l.Fields == nil }

// drop deletes a key and reports whether it existed. It keeps the counter of tokens. It also keeps
// a queue, because contenders of Simba 3.2 and 3.3 delete the queue's key at each release, but do
// not use the queue. A transaction that deletes the key of a token must also end the tenure:
// keyUpdate.run checks this.
func (t *keyTx) drop(k simba.Key) bool {
	_, exists := t.lookup(k)
	switch {
	case !exists:
	case k.Part == simba.KeyLock:
		t.Drop(k.Mutex)
	case k.Part == simba.KeyToken:
		t.DropToken(k.Mutex)
		*t.droppedToken = true
	}
	return exists
}

// mayGrow reports whether a full server refuses e with these arguments. A command that sets a lock
// key to its present value is allowed, because it renews the lease.
func (t *keyTx) mayGrow(e *entry, args [][]byte) bool {
	if !e.has(denyoom) || !e.has(renewing) {
		return e.has(denyoom)
	}
	l, err := t.str(t.key(args))
	return err != nil || !l.Exists() || l.Owner != string(e.actor.ids(args)[0])
}
