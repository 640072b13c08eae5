package persist

import (
	"fmt"
	"runtime"
	"time"

	"github.com/simba-resp/simba-resp"
)

// group is the changes of one record, which one fsync makes durable.
type group struct {
	record   []byte        // the head, still empty, and the changes
	limit    int           // if record gets longer than this, appendLocked calls shrink
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
	*g = group{record: record, limit: maxPending, done: make(chan struct{})}
}

// shrink drops each change that a later change in the record supersedes. Thus a record of many
// changes to few large leases needs little memory. A small record keeps superseded changes, so
// Append stays cheap.
func (g *group) shrink() {
	g.record = lastChanges(g.record)
	g.limit = max(maxPending, 2*len(g.record))
}

func (g *group) begin(ch *simba.Change) {
	g.first = ch.Seq
	if len(ch.Events) > 0 {
		g.first = min(g.first, ch.Events[0].Seq)
	}
	g.event = lastEvent{seq: g.first}
}

// closeLargeLocked moves the next group to ready if it could grow beyond maxRecord before its next
// shrink.
func (s *Store) closeLargeLocked() {
	if s.next.limit > s.maxRecord && !s.closed {
		s.next.wanted = true
		s.ready = append(s.ready, s.next)
		s.next = newGroup()
		s.beginWriteLocked()
	}
}

func (s *Store) beginWriteLocked() {
	if !s.writing && !s.fault.failed() {
		s.writing = true
		s.writer.Go(s.write)
	}
}

func (s *Store) flushNext() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.changes > 0 && !s.closed {
		s.next.wanted = true
		s.beginWriteLocked()
	}
}

// write writes groups until none is wanted. One goroutine at a time runs it. If the disk hangs,
// the watchdog ends the process.
func (s *Store) write() {
	for !s.fault.failed() {
		// Runnable goroutines add their changes first: an fsync of a hundred changes costs about as
		// much as one of a single change.
		runtime.Gosched()
		g := s.take()
		if g == nil {
			return
		}
		start := time.Now()
		if err := s.apply(g); err != nil {
			s.fault.trip(fmt.Errorf("commit: %w", oneLine{err}))
			return
		}
		// If the disk answered late, the watchdog has already marked the store as failed.
		if s.fault.failed() {
			return
		}
		s.markDurable(g, time.Since(start))
	}
}

// take makes the oldest wanted group the current one. It returns nil if no group is wanted.
func (s *Store) take() *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.next
	switch {
	case len(s.ready) > 0:
		g, s.ready = s.ready[0], s.ready[1:]
	case !g.wanted:
		s.writing = false
		return nil
	default:
		if s.next, s.spare = s.spare, nil; s.next == nil {
			s.next = newGroup()
		}
	}
	var h head
	g.promised, h = s.promiseLocked(g.final)
	if h.first, h.last = g.first, g.last; g.changes == 0 {
		h.first, h.last = s.appended.seq, s.appended.seq
	}
	h.generation, h.base = s.epoch.Generation, g.base
	h.put(g.record)
	s.closed = g.final
	s.current = g
	return g
}

// promiseLocked returns the next record's floors, and its head without the fields first, last,
// generation and base. The floors include a reserve for later changes. A final record has no
// reserve, because no change follows.
func (s *Store) promiseLocked(final bool) (floors, head) {
	f := s.appended
	if s.mode == Always || final {
		f.longest = 0
	}
	if !final {
		f.seq += seqReserve
	}
	if s.mode == Async && !final {
		f.token += tokenReserve
	}
	h := head{seq: f.seq, token: f.token, delay: f.longest, instant: s.bootNow(), wall: s.wall().UnixMilli()}
	if left := s.recoverUntil.Sub(s.now()); left > 0 {
		if final {
			h.delay = left
		} else {
			// The next run cannot know when this run crashed. So it inherits the whole delay.
			h.delay = max(h.delay, s.inherited)
		}
	}
	return f, h
}

func (s *Store) apply(g *group) error {
	if err := s.awaitCheckpoint(); err != nil {
		return err
	}
	s.watchdog.Reset(s.timeout)
	defer s.watchdog.Stop()
	if _, err := s.journal.Append(g.record); err != nil {
		return err
	}
	if s.behind() > 0 {
		notify(s.full)
	}
	return s.journal.Sync()
}

func (s *Store) markDurable(g *group, took time.Duration) {
	s.mu.Lock()
	s.current = nil
	s.durable = g.promised
	s.updateCommittedLocked()
	s.stats.add(g, took)
	done := g.done
	g.reset()
	s.spare = g
	s.mu.Unlock()
	close(done)
}
