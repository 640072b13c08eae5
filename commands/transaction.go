package commands

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
)

// multiState is what MULTI, EXEC and WATCH need to know of a connection.
type multiState struct {
	tx        *transaction // between MULTI and EXEC
	executing bool         // inside EXEC
	watched   watches      // the keys of WATCH
	queued    atomic.Int32 // commands queued by MULTI, -1 outside; CLIENT LIST shows it
}

// end ends the transaction and every WATCH.
func (m *multiState) end(space simba.Keyspace) {
	m.tx = nil
	m.queued.Store(-1)
	m.watched.forget(space)
	m.watched = nil
}

// where returns the context of a denial for the audit log.
func (m *multiState) where() string {
	if m.tx != nil || m.executing {
		return "multi"
	}
	return "toplevel"
}

// transaction has the commands that a connection has queued after MULTI.
type transaction struct {
	queue  []queuedCommand
	bytes  int
	broken bool // the server refused to queue a command, so EXEC will fail
	grows  bool // a queued command may take memory

	chunk []byte      // memory for packed arguments
	args  [][]byte    // the result of unpack
	calls []execution // the results of EXEC
}

type queuedCommand struct {
	entry  *entry
	packed []byte // its arguments, each after its length
}

// The limits of a transaction's memory. When the replies of an EXEC exceed maxExecReply, EXEC runs
// no further command.
const (
	maxQueuedCommands = 10000
	maxQueuedBytes    = 8 << 20
	maxExecReply      = 16 << 20

	// argumentOverhead is the memory that EXEC needs to unpack an argument, in bytes.
	// maxQueuedBytes includes it.
	argumentOverhead = 40
)

// queueChunk is the largest size of a chunk, in bytes. A chunk holds the arguments of several
// commands. A command whose arguments exceed a quarter of queueChunk gets memory of its own.
const queueChunk = 4 << 10

// lengthSize is the size of the length before each packed argument, in bytes.
const lengthSize = 4

// pack copies the arguments of a command out of the connection's buffer.
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

// unpack returns the arguments of a queued command. They are valid until the next call.
func (tx *transaction) unpack(q queuedCommand) [][]byte {
	tx.args = tx.args[:0]
	for rest := q.packed; len(rest) > 0; {
		end := lengthSize + int(binary.LittleEndian.Uint32(rest))
		tx.args = append(tx.args, rest[lengthSize:end:end])
		rest = rest[end:]
	}
	return tx.args
}

// keyed reports whether Keyspace.Update can run all queued commands in one step.
func (tx *transaction) keyed() bool {
	return !slices.ContainsFunc(tx.queue, func(q queuedCommand) bool { return q.entry.keyed == nil })
}

// idleTransactions are ended transactions. Later ones reuse their memory.
var idleTransactions = sync.Pool{New: func() any { return new(transaction) }}

// mostKept is the largest capacity, in commands or in arguments, that an idle transaction keeps.
const mostKept = 2 << 10

// recycle makes the transaction idle, unless it has much memory. The caller must not use tx any
// more.
func (tx *transaction) recycle() {
	if cap(tx.queue) <= mostKept && cap(tx.args) <= mostKept {
		tx.reset()
		idleTransactions.Put(tx)
	}
}

func (tx *transaction) reset() {
	clear(tx.queue)
	clear(tx.args[:cap(tx.args)]) // also what a longer command has left beyond the length
	clear(tx.calls)
	*tx = transaction{queue: tx.queue[:0], chunk: tx.chunk[:0], args: tx.args[:0], calls: tx.calls[:0]}
}

type execution struct {
	took   time.Duration
	err    error // nil = the command succeeded; else its reply
	denied int   // if the command is a script: how many of its calls the rules denied
}

// watches maps each watched key to the version that it had when WATCH named it.
type watches map[simba.Key]uint64

func isQueue(k simba.Key) bool { return k.Part == simba.KeyQueue }

func (w watches) forget(space simba.Keyspace) {
	for k := range w {
		space.Unwatch(k.Mutex)
	}
}
