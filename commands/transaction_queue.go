package commands

import (
	"encoding/binary"
	"slices"
	"sync"
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

// The most that a transaction may hold in memory: what MULTI queues, and what
// EXEC has replied when it runs no further command, since its array cannot be
// sent in parts.
const (
	maxQueuedCommands = 10000
	maxQueuedBytes    = 8 << 20
	maxExecReply      = 16 << 20

	// argumentOverhead is what an argument counts besides its bytes: what EXEC makes of it costs
	// memory too.
	argumentOverhead = 40
)

// queueChunk is the memory for the arguments of several commands, in bytes. What would leave much
// of one unused has its own.
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

// keyed reports whether every command can run in a transaction of the keyspace.
func (tx *transaction) keyed() bool {
	return !slices.ContainsFunc(tx.queue, func(q queuedCommand) bool { return q.entry.keyed == nil })
}

// idleTransactions are transactions that are over, for their memory: who sends them without end
// would make garbage without end.
var idleTransactions = sync.Pool{New: func() any { return new(transaction) }}

// mostKept is how many commands, and how many arguments of one, a transaction has room for that is
// used again.
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
