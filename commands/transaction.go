package commands

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// transaction is what MULTI has queued on a connection.
type transaction struct {
	queue  []queuedCommand
	bytes  int
	broken bool // a command was refused: EXEC will not run the others
	grows  bool // one of the commands takes memory

	chunk []byte      // of what is packed
	args  [][]byte    // of the command that runs
	calls []execution // by EXEC, of the queue
}

type queuedCommand struct {
	entry  *entry
	packed []byte // its arguments, each behind its length
}

// queueChunk is the memory for the arguments of several commands, in bytes. What would leave much of one unused has its own.
const queueChunk = 4 << 10

// lengthSize is what an argument takes there besides its bytes.
const lengthSize = 4

// pack keeps the arguments of a command, which live in the connection's buffer.
func (tx *transaction) pack(args [][]byte) []byte {
	size := len(args) * lengthSize
	for _, a := range args {
		size += len(a)
	}
	packed := tx.chunk
	switch {
	case size > queueChunk/4:
		packed = make([]byte, 0, size)
	case size > cap(packed)-len(packed):
		packed = make([]byte, 0, max(size, min(2*cap(packed), queueChunk)))
	}
	from := len(packed)
	for _, a := range args {
		packed = append(binary.LittleEndian.AppendUint32(packed, uint32(len(a))), a...)
	}
	if size <= queueChunk/4 {
		tx.chunk = packed
	}
	return packed[from:]
}

// unpack returns the arguments of a command of the queue. They are good until the next call.
func (tx *transaction) unpack(q queuedCommand) [][]byte {
	tx.args = tx.args[:0]
	for rest := q.packed; len(rest) > 0; {
		end := lengthSize + int(binary.LittleEndian.Uint32(rest))
		tx.args = append(tx.args, rest[lengthSize:end:end])
		rest = rest[end:]
	}
	return tx.args
}

// idleTransactions are transactions that are over, for their memory: who sends them without end would make garbage without end.
var idleTransactions = sync.Pool{New: func() any { return new(transaction) }}

// mostKept is how many commands, and how many arguments of one, a transaction has room for that is used again.
const mostKept = 2 << 10

// recycle is called at the end, when nobody has anything of the transaction any more.
func (tx *transaction) recycle() {
	if cap(tx.queue) <= mostKept && cap(tx.args) <= mostKept {
		tx.reset()
		idleTransactions.Put(tx)
	}
}

// reset empties the transaction, but for its memory.
func (tx *transaction) reset() {
	clear(tx.queue)
	clear(tx.args[:cap(tx.args)]) // those of commands with more arguments too
	clear(tx.calls)
	*tx = transaction{queue: tx.queue[:0], chunk: tx.chunk[:0], args: tx.args[:0], calls: tx.calls[:0]}
}

// The most that a transaction may hold in memory: what MULTI queues, and what
// EXEC has replied when it runs no further command, since its array cannot be
// sent in parts.
const (
	maxQueuedCommands = 10000
	maxQueuedBytes    = 8 << 20
	maxExecReply      = 16 << 20

	// argumentOverhead is what an argument counts besides its bytes: what EXEC makes of it costs memory too.
	argumentOverhead = 40
)

const errExecReply replyError = "ERR not executed: the replies of this transaction are too large"

func (c *client) multi([][]byte) {
	if c.tx != nil {
		c.fail(replyError("ERR MULTI calls can not be nested"))
		return
	}
	c.tx = idleTransactions.Get().(*transaction)
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
	c.tx.queue = append(c.tx.queue, queuedCommand{e, c.tx.pack(args)})
	c.tx.bytes += size
	c.tx.grows = c.tx.grows || e.has(denyoom)
	c.queued.Store(int32(len(c.tx.queue)))
	c.w.Simple("QUEUED")
}

func (c *client) discard([][]byte) {
	if c.tx == nil {
		c.fail(replyError("ERR DISCARD without MULTI"))
		return
	}
	defer c.tx.recycle()
	c.endTransaction()
	c.w.Simple("OK")
}

func (c *client) endTransaction() {
	c.tx = nil
	c.queued.Store(-1)
	c.forgetWatch()
}

// exec runs what was queued and replies with the array of their replies: in one step if all
// of them are commands of the keyspace, else each by itself, with other clients' in between.
func (c *client) exec(args [][]byte) {
	defer c.x.monitors.feed(c, args) // after its commands, as in Redis
	tx, watched := c.tx, c.watched
	if tx == nil {
		c.fail(replyError("ERR EXEC without MULTI"))
		return
	}
	defer tx.recycle()
	c.watched = nil
	defer c.unwatchAll(watched)
	c.endTransaction()
	switch {
	case tx.broken:
		c.fail(replyError("EXECABORT Transaction discarded because of previous errors."))
	case c.x.keyspace != nil && tx.keyed():
		c.execKeyed(tx, watched)
	case len(watched) == 0 || c.unchanged(watched):
		c.execEach(tx)
	}
}

// keyed reports whether every command can run in a transaction of the keyspace.
func (tx *transaction) keyed() bool {
	return !slices.ContainsFunc(tx.queue, func(q queuedCommand) bool { return q.entry.keyed == nil })
}

// execEach runs the commands one after the other, each as if it were alone.
func (c *client) execEach(tx *transaction) {
	c.executing = true
	start, parked := c.w.Len(), time.Duration(0)
	c.w.Array(len(tx.queue))
	for _, q := range tx.queue {
		args := tx.unpack(q)
		// What came before in the transaction may have changed what is allowed.
		err := c.admit(q.entry, args)
		if c.w.Len()-start > maxExecReply {
			err = errExecReply
		}
		if err != nil {
			c.reject(q.entry, err)
			continue
		}
		c.run(q.entry, args)
		c.giveWay()
		parked += c.parked
	}
	c.executing = false
	c.failed, c.parked = false, parked // they were the inner commands'
}

// execKeyed runs the commands in one transaction, if no watched key has changed.
func (c *client) execKeyed(tx *transaction, watched watches) {
	err := c.transact(func(t *keyTx) error {
		if err := t.checkWatched(watched); err != nil {
			return err
		}
		return t.runAll(tx)
	})
	switch {
	case errors.Is(err, errWatchedChanged):
		c.nullArray()
	case err != nil:
		c.fail(err)
	default:
		c.executed(tx)
	}
}

// executed notes the commands of an EXEC where each would be noted that runs alone. It waits
// for the end of the transaction, since one that conflicts begins anew.
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
		c.tell(q.entry, args, call.took, call.err != nil)
	}
}

// nullArray is the reply of an EXEC that was not executed.
func (c *client) nullArray() {
	if c.w.Proto() == 3 {
		c.w.Null()
		return
	}
	c.w.Array(-1)
}

// watches are the keys of WATCH, with the version that each had then.
type watches map[simba.Key]uint64

func isQueue(k simba.Key) bool { return k.Part == simba.KeyQueue }

// maxWatched is how many keys a connection may watch: the engine counts the changes of each.
const maxWatched = 1000

func (c *client) watchKeys(args [][]byte) {
	space, err := c.keyspace()
	switch {
	case err != nil:
		c.fail(err)
		return
	case c.tx != nil:
		c.fail(replyError("ERR WATCH inside MULTI is not allowed"))
		return
	}
	var added []simba.Key
	for _, a := range args[1:] {
		k := parseKey(a)
		if _, ok := c.watched[k]; !ok {
			added = append(added, k)
		}
	}
	if len(c.watched)+len(added) > maxWatched {
		c.fail(replyErrorf("ERR too many watched keys: a connection may watch at most %d", maxWatched))
		return
	}
	if c.watched == nil {
		c.watched = make(watches)
	}
	for _, k := range added {
		if _, ok := c.watched[k]; !ok { // it may be given twice
			c.watched[k] = space.Watch(k.Mutex, isQueue(k))
		}
	}
	c.w.Simple("OK")
}

func (c *client) unwatch([][]byte) {
	c.forgetWatch()
	c.w.Simple("OK")
}

// unwatchKeyed is UNWATCH inside EXEC, which has ended the watch.
func unwatchKeyed(t *keyTx, _ [][]byte) error {
	t.w.Simple("OK")
	return nil
}

func (c *client) forgetWatch() {
	c.unwatchAll(c.watched)
	c.watched = nil
}

func (c *client) unwatchAll(watched watches) {
	for k := range watched {
		c.x.keyspace.Unwatch(k.Mutex)
	}
}

// errWatchedChanged is returned when a watched key has changed. EXEC replies with a null array.
var errWatchedChanged = errors.New("a watched key has changed")

// checkWatched returns errWatchedChanged if a watched key has changed. The transaction conflicts
// if one changes before the commit.
func (t *keyTx) checkWatched(watched watches) error {
	for k, version := range watched {
		if !t.Unchanged(k.Mutex, isQueue(k), version) {
			return errWatchedChanged
		}
	}
	return nil
}

// unchanged reports whether no watched key has changed; otherwise EXEC is answered.
func (c *client) unchanged(watched watches) bool {
	err := c.transact(func(t *keyTx) error { return t.checkWatched(watched) })
	switch {
	case errors.Is(err, errWatchedChanged):
		c.nullArray()
	case err != nil:
		c.fail(err)
	}
	return err == nil
}
