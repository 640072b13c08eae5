package engine

import (
	"iter"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Journal makes an engine's changes durable. Clients may see the changes up to Committed.
type Journal interface {
	// Append adds the next change to the next commit. The engine calls Append in the order of Seq,
	// one call at a time, under a lock. Append must do no I/O, and must keep no reference to
	// ch.Events. It always succeeds. A journal that fails stops the process, or makes Commit return
	// an error from then on.
	//
	// The journal decides which changes must be synced. Committed does not reach such a change
	// before the change is durable. If Append returns true, the engine calls Commit for the change.
	// Append may return false for a change that must be synced, if it has returned true for an
	// earlier change of the same fsync.
	Append(ch simba.Change) (mustSync bool)
	// AppendAll is Append for several changes. A crash leaves all of them or none.
	AppendAll(changes []simba.Change) (mustSync bool)
	// Commit returns when all changes up to seq are durable, as far as the mode of durability
	// promises. Concurrent callers share one fsync. The journal bounds the wait.
	Commit(seq simba.Seq) error
	// Committed returns the largest seq such that every change up to seq is durable, as far as the
	// mode of durability promises. It never falls, and may grow at any time. It is as cheap as an
	// atomic load, and safe for concurrent use.
	Committed() simba.Seq
}

// Recovery is the state that a journal has from earlier runs.
type Recovery struct {
	Seq   simba.Seq // the next change gets a larger Seq
	Token uint64    // the next tenure gets a larger token
	// Delay is the recovery delay: no new tenure may begin until it has passed. A crash may have
	// lost leases that still run, and their owners may rely on them.
	Delay   time.Duration
	Leases  iter.Seq2[simba.Lease, error] // may include ended leases; nil = none
	History []simba.Event                 // from old to new
}

// memoryJournal is the Journal of durability "memory": every change is committed.
type memoryJournal struct{}

func (memoryJournal) Append(simba.Change) bool      { return false }
func (memoryJournal) AppendAll([]simba.Change) bool { return false }
func (memoryJournal) Commit(simba.Seq) error        { return nil }
func (memoryJournal) Committed() simba.Seq          { return everything }

// everything is the result of Committed for a journal that never holds replies back.
const everything simba.Seq = 1<<64 - 1

// Memory returns a journal that keeps nothing.
func Memory() Journal { return memoryJournal{} }
