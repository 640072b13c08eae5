package commands

import (
	"slices"
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

	calls []execution // the results of EXEC
}

type queuedCommand struct {
	entry *entry
	args  [][]byte
}

// The limits of a transaction's memory. When the replies of an EXEC exceed maxExecReply, EXEC runs
// no further command.
const (
	maxQueuedCommands = 10000
	maxQueuedBytes    = 8 << 20
	maxExecReply      = 16 << 20

	// argumentOverhead is the memory of an argument besides its bytes. maxQueuedBytes includes it.
	argumentOverhead = 40
)

// keyed reports whether Keyspace.Update can run all queued commands in one step.
func (tx *transaction) keyed() bool {
	return !slices.ContainsFunc(tx.queue, func(q queuedCommand) bool { return q.entry.keyed == nil })
}

type execution struct {
	took time.Duration
	err  error // nil = the command succeeded; else its reply
}

// watches maps each watched key to the version that it had when WATCH named it.
type watches map[simba.Key]uint64

func isQueue(k simba.Key) bool { return k.Part == simba.KeyQueue }

func (w watches) forget(space simba.Keyspace) {
	for k := range w {
		space.Unwatch(k.Mutex)
	}
}
