package persist

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// group is the changes of one record, which one fsync makes durable.
type group struct {
	record   []byte        // the head, still empty, and the changes
	scratch  []byte        // memory for one encoded change
	limit    int           // if record gets longer than this, add calls shrink
	slept    time.Duration // how far the engine's clock is behind the boot's clock
	base     simba.Instant // see head
	hasBase  bool          // base is set
	event    lastEvent
	changes  int
	first    simba.Seq // of its first change
	last     simba.Seq // of its last change
	mustSync simba.Seq // its first change that must be synced; 0 = none

	wanted bool          // the writer must write this group
	final  bool          // the last group: Close waits for it
	done   chan struct{} // closed when the group is durable

	promised floors // the floors that the record states; set by take
}

func newGroup() *group {
	g := &group{record: make([]byte, headSize, 4096)}
	g.reset()
	return g
}

// reset empties the group, and keeps its memory for use again.
func (g *group) reset() {
	record := g.record[:headSize]
	if cap(record) > 2*maxPending {
		record = make([]byte, headSize, 4096) // frees the memory of a large record
	}
	*g = group{record: record, scratch: g.scratch, limit: maxPending, done: make(chan struct{})}
}

// add encodes a change into the record. slept is that of Options.
func (g *group) add(ch *simba.Change, slept func() time.Duration) {
	if g.changes == 0 {
		g.first = ch.Seq
		if len(ch.Events) > 0 {
			g.first = min(g.first, ch.Events[0].Seq)
		}
		g.event = lastEvent{seq: g.first}
		if slept != nil {
			g.slept = slept()
		}
	}
	g.changes++
	g.last = ch.Seq
	switch ch.Kind {
	case simba.ChangePut:
		// Stored instants are of the boot's clock. The engine's clock may be behind that clock.
		l := ch.Lease
		l.Acquired = l.Acquired.Add(g.slept)
		if !g.hasBase {
			g.hasBase, g.base = true, l.Acquired
		}
		g.append(changePut, appendPut(g.scratch[:0], g.base, &l))
	case simba.ChangeDelete:
		g.append(changeDelete, append(g.scratch[:0], ch.Lease.Mutex...))
	}
	for i := range ch.Events {
		g.append(changeEvent, g.event.append(g.scratch[:0], &ch.Events[i]))
	}
	if len(g.record) > g.limit {
		g.shrink()
	}
}

func (g *group) append(kind changeKind, body []byte) {
	g.record = appendChange(g.record, kind, body)
	g.scratch = body
}

// shrink drops each change that a later change in the record supersedes. Thus a record of many
// changes to few large leases needs little memory. A small record keeps superseded changes, so
// Append stays cheap.
func (g *group) shrink() {
	g.record = lastChanges(g.record)
	g.limit = max(maxPending, 2*len(g.record))
}
