package persist

import (
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp"
)

// group is the changes that are written together: one record, with one fsync.
type group struct {
	record   []byte        // room for the head, then the changes
	limit    int           // length at which superseded changes are dropped
	slept    time.Duration // machine sleep that the engine's clock missed
	base     simba.Instant // boot time from which the puts count
	hasBase  bool          // it has a put
	event    lastEvent
	changes  int
	first    simba.Seq // of its first change
	last     simba.Seq // of its last change
	mustSync simba.Seq // its first change that must be synced; 0 = none

	wanted bool          // a caller waits for it
	final  bool          // the last group: Close waits for it
	done   chan struct{} // closed when it is durable

	promised floors // floors that the record states; take sets them
}

func newGroup() *group {
	g := &group{record: make([]byte, headSize, 4096)}
	g.reset()
	return g
}

// reset empties the group for use again, with its memory.
func (g *group) reset() {
	record := g.record[:headSize]
	if cap(record) > 2*maxPending {
		record = make([]byte, headSize, 4096) // do not keep the memory of a large record
	}
	*g = group{record: record, limit: maxPending, done: make(chan struct{})}
}

// shrink drops changes that a later one in the record supersedes. Thus many changes to few large
// leases need little memory. A small record keeps them, so Append stays cheap.
func (g *group) shrink() {
	g.record = lastChanges(g.record)
	g.limit = max(maxPending, 2*len(g.record))
}

// begin notes the number of the group's first change.
func (g *group) begin(ch *simba.Change) {
	g.first = ch.Seq
	if len(ch.Events) > 0 {
		g.first = min(g.first, ch.Events[0].Seq)
	}
	g.event = lastEvent{seq: g.first}
}

// closeLargeLocked queues the next group once it reaches maxRecord.
func (s *Store) closeLargeLocked() {
	if s.next.limit > s.maxRecord && !s.closed {
		s.next.wanted = true
		s.ready = append(s.ready, s.next)
		s.next = newGroup()
		s.beginWriteLocked()
	}
}

// beginWriteLocked starts the writer unless it runs or the store failed.
func (s *Store) beginWriteLocked() {
	if !s.writing && !s.fault.failed() {
		s.writing = true
		s.writer.Go(s.write)
	}
}

// flushNext writes pending changes when the flush timer fires.
func (s *Store) flushNext() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.changes > 0 && !s.closed {
		s.next.wanted = true
		s.beginWriteLocked()
	}
}

// write writes groups until nobody waits. It runs on a goroutine of its own, at most once at a
// time. If the disk hangs, the watchdog ends the process.
func (s *Store) write() {
	for !s.fault.failed() {
		s.gather()
		g := s.take()
		if g == nil {
			return
		}
		start := time.Now()
		if err := s.apply(g); err != nil {
			s.fault.trip(fmt.Errorf("commit: %w", oneLine{err}))
			return
		}
		// A success after the watchdog gave up does not count.
		if s.fault.failed() {
			return
		}
		s.took = time.Since(start)
		s.markDurable(g, s.took)
	}
}

const (
	// A group is written after idleYields yields in a row without a change. The server may need one
	// or two yields to read what a socket has received.
	idleYields = 4
	// longestGather bounds the yields on a disk that is slow.
	longestGather = time.Millisecond
)

// gather yields so that runnable goroutines add changes. An fsync for a hundred changes costs about
// as much as one for a single change. gather stops after half the last write's time, at most
// longestGather.
func (s *Store) gather() {
	began, enough := time.Now(), min(s.took/2, longestGather)
	for changes, idle := 0, 0; idle < idleYields; idle++ {
		n, next := s.gathered()
		if !next {
			return
		}
		if n != changes {
			changes, idle = n, 0
		}
		s.yield()
		if time.Since(began) > enough {
			return
		}
	}
}

// gathered returns the size of s.next in changes, and whether s.next is the next group to be
// written.
func (s *Store) gathered() (changes int, next bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next.changes, s.next.wanted && len(s.ready) == 0
}

// take moves the oldest waiting group to current. It returns nil if no group waits.
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

// promiseLocked returns the next record's floors and head. The head still lacks the numbers of the
// changes. The final record reserves nothing: no change follows.
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
			// The next run cannot know when this run crashed. So its delay is all that earlier runs
			// left.
			h.delay = max(h.delay, s.inherited)
		}
	}
	return f, h
}

// apply writes the group and syncs it.
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

// markDurable marks the group as durable, and wakes its waiters.
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
