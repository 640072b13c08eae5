package commands

import (
	"context"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// sessionLeases are the leases that the option SESSION bound to one connection, by mutex. The
// backend stores the session of each lease too. When a session ends, the backend does not release a
// lease that another session has taken meanwhile.
type sessionLeases struct {
	byMutex map[string]boundLease
	sweepAt int  // the number of leases at which bind calls sweep
	counted bool // the connection is counted in statistics.sessions
}

type boundLease struct {
	contender string
	token     uint64 // unknownToken if the store did not report it
}

// firstSweep is the number of leases at which a session first forgets expired leases.
const firstSweep = 64

// bind records a lease that SESSION bound to the connection.
func (s *sessionLeases) bind(ctx context.Context, backend simba.Backend, mutex, contender string, token uint64) {
	if s.byMutex == nil {
		s.byMutex = make(map[string]boundLease)
		s.sweepAt = firstSweep
	}
	s.byMutex[mutex] = boundLease{contender, token}
	if len(s.byMutex) >= s.sweepAt {
		s.sweep(ctx, backend)
	}
}

// unbind forgets the bound lease of a mutex if its tenure has ended. current is the present token
// of the mutex, 0 = free.
func (s *sessionLeases) unbind(mutex string, current uint64) {
	if b, ok := s.byMutex[mutex]; ok && b.token != current && b.token != unknownToken {
		delete(s.byMutex, mutex)
	}
}

// sweep forgets expired leases. It runs when the number of leases has doubled since the last
// sweep. So the map has at most about twice the leases that the connection owns, and each lease
// costs a constant time.
func (s *sessionLeases) sweep(ctx context.Context, backend simba.Backend) {
	for mutex, b := range s.byMutex {
		if b.token == unknownToken {
			delete(s.byMutex, mutex) // by now the contender has asked again or given up
			continue
		}
		held, _, err := backend.Check(ctx, mutex, b.token)
		if err != nil {
			break // the store does not answer; try again at the next sweep
		}
		if !held {
			delete(s.byMutex, mutex)
		}
	}
	s.sweepAt = max(firstSweep, 2*len(s.byMutex))
}

// unknownToken stands for a token that the store did not report. No tenure has it.
const unknownToken = 0

// inUse reports whether the connection owns a lease of SESSION. If the store does not
// answer, it returns true, because the connection may own one. It forgets leases that have ended.
func (s *sessionLeases) inUse(ctx context.Context, backend simba.Backend) bool {
	for mutex, b := range s.byMutex {
		t, _, err := backend.Owner(ctx, mutex)
		switch {
		case err != nil, t.Token == b.token && t.Token != 0:
			return true
		case b.token != unknownToken:
			delete(s.byMutex, mutex)
		case t.Owner == b.contender:
			return true
		}
	}
	return false
}

// count keeps the number of sessions up to date after a command, or after the connection's end. The
// command may have bound the connection's first lease, or released its last one.
func (s *sessionLeases) count(sessions *atomic.Int64) {
	bound := len(s.byMutex) > 0
	switch {
	case bound && !s.counted:
		sessions.Add(1)
	case !bound && s.counted:
		sessions.Add(-1)
	}
	s.counted = bound
}
