package persist

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp/bugs"
)

// wantNextLocked has the next group written, and returns what is closed then.
func (s *Store) wantNextLocked() <-chan struct{} {
	s.next.wanted = true
	if !s.writing {
		s.writing = true
		s.writer.Go(s.write)
	}
	return s.next.done
}

// flushNext is called by the flush timer.
func (s *Store) flushNext() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.changes > 0 && !s.closed {
		s.wantNextLocked()
	}
}

// write writes groups for as long as somebody wants the next one. It runs on a
// goroutine of its own, and at most once at a time, so that a disk that hangs
// holds up nobody beyond the watchdog's time.
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
		// An answer that comes after the watchdog's patience changes nothing.
		if s.fault.failed() {
			return
		}
		s.took = time.Since(start)
		s.publish(g, s.took)
	}
}

const (
	// idleYields is after how many yields in a row that brought nothing a group is taken for complete: what a
	// socket has received is only read by who looks at the network, and that takes a round or two.
	idleYields = 4
	// longestGather bounds the yields on a disk that is slow.
	longestGather = time.Millisecond
)

// gather lets everybody who can run add to the next group before it is written: an fsync and what surrounds it cost
// about as much for a change as for a hundred. It begins no other yield when half the time of the last write is
// over; how long one takes is the scheduler's affair.
func (s *Store) gather() {
	began, enough := time.Now(), min(s.took/2, longestGather)
	for changes, idle := 0, 0; idle < idleYields; idle++ {
		n, wanted := s.gathered()
		if !wanted {
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

// gathered is how many changes the next group has, and whether somebody waits for it.
func (s *Store) gathered() (changes int, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next.changes, s.next.wanted
}

// take makes the next group the current one, or returns nil if nobody wants it.
func (s *Store) take() *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.next
	if !g.wanted {
		s.writing = false
		return nil
	}
	g.promised, g.meta = s.promiseLocked(g.final)
	s.closed = g.final
	s.current = g
	if s.next, s.spare = s.spare, nil; s.next == nil {
		s.next = newGroup(s.db)
	}
	return g
}

// promiseLocked returns the floors that the meta record is to grant, and the
// record. The final one is exact: after it nothing can be lost.
func (s *Store) promiseLocked(final bool) (floors, meta) {
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
	m := s.template
	m.Seq, m.Token, m.Quiet, m.Latest = f.seq, f.token, f.longest, s.bootNow()
	if left := s.quietUntil.Sub(s.now()); left > 0 {
		if final {
			m.Quiet = left
		} else {
			// A crash does not tell when it was, so the next run waits in full.
			m.Quiet = max(m.Quiet, s.inherited)
		}
	}
	return f, m
}

// apply writes the group and syncs it.
func (s *Store) apply(g *group) error {
	s.watchdog.Reset(s.timeout)
	defer s.watchdog.Stop()
	if err := s.history.write(g.batch, &g.events); err != nil {
		return err
	}
	if err := g.batch.Set([]byte(metaKey), appendMeta(nil, &g.meta), nil); err != nil {
		return err
	}
	if bugs.On(bugs.FsyncSkipped) {
		return s.db.Apply(g.batch, pebble.NoSync)
	}
	return s.db.Apply(g.batch, pebble.Sync)
}

// publish makes known that the group is durable.
func (s *Store) publish(g *group, took time.Duration) {
	s.mu.Lock()
	s.current = nil
	s.durable = g.promised
	s.updateTellableLocked()
	s.stats.add(g, took)
	done := g.done
	g.reset()
	s.spare = g
	s.mu.Unlock()
	close(done)
}

func newGroup(db *pebble.DB) *group {
	return &group{batch: db.NewBatch(), done: make(chan struct{})}
}

// reset empties the group for use again, with its memory.
func (g *group) reset() {
	g.batch.Reset()
	*g = group{
		batch:  g.batch,
		events: segment{value: g.events.value[:0]},
		done:   make(chan struct{}),
	}
}

// size is how many bytes wait to be written.
func (g *group) size() int { return g.batch.Len() + len(g.events.value) }
