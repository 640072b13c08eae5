package conformance

import (
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
)

// delayedJournal acknowledges a change of a lease some time after the underlying journal has made
// it durable, from another goroutine, as a replicated journal would.
type delayedJournal struct {
	engine.Journal
	delay func() time.Duration

	mu           sync.Mutex
	acknowledged *sync.Cond  // signals each acknowledgement
	held         []simba.Seq // changes without an acknowledgement, in order
	last         simba.Seq   // the last appended change
}

// allCommitted is the result of Committed of a journal without durability.
const allCommitted simba.Seq = 1<<64 - 1

// Late returns a journal that acknowledges the changes of j later than j does. The function delay
// returns how much later.
func Late(j engine.Journal, delay func() time.Duration) engine.Journal {
	d := &delayedJournal{Journal: j, delay: delay}
	d.acknowledged = sync.NewCond(&d.mu)
	if seq := j.Committed(); seq != allCommitted {
		d.last = seq
	}
	return d
}

// Append implements engine.Journal. It syncs every change of a lease.
func (d *delayedJournal) Append(ch simba.Change) (mustSync bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	mustSync = d.Journal.Append(ch) || ch.Kind != simba.ChangeNone
	if d.last = ch.Seq; mustSync {
		d.held = append(d.held, ch.Seq)
	}
	return mustSync
}

// AppendAll implements engine.Journal.
func (d *delayedJournal) AppendAll(changes []simba.Change) (mustSync bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Journal.AppendAll(changes)
	for _, ch := range changes {
		d.held = append(d.held, ch.Seq)
		d.last = ch.Seq
	}
	return true
}

// Committed implements engine.Journal.
func (d *delayedJournal) Committed() simba.Seq {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.committedLocked()
}

func (d *delayedJournal) committedLocked() simba.Seq {
	if len(d.held) > 0 {
		return d.held[0] - 1
	}
	return min(d.last, d.Journal.Committed())
}

// Commit implements engine.Journal.
func (d *delayedJournal) Commit(seq simba.Seq) error {
	if seq <= d.Committed() {
		return nil
	}
	if err := d.Journal.Commit(seq); err != nil {
		return err
	}
	time.AfterFunc(d.delay(), func() { d.acknowledge(seq) })
	d.mu.Lock()
	defer d.mu.Unlock()
	for seq > d.committedLocked() {
		d.acknowledged.Wait()
	}
	return nil
}

func (d *delayedJournal) acknowledge(seq simba.Seq) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n < len(d.held) && d.held[n] <= seq {
		n++
	}
	d.held = d.held[n:]
	d.acknowledged.Broadcast()
}
