package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
)

// This file has steps with short leases. On a busy machine such a lease may end before the reply or
// the test's next step. That is no fault of the engine.

// isLate reports whether a request for a lease failed because its answer came after the lease or
// after the server's timeout. The store may have granted such a lease.
func (s *server) isLate(err error, asked time.Time, lease time.Duration) bool {
	var unavailable *simba.UnavailableError
	return errors.As(err, &unavailable) && time.Since(asked) >= min(lease, s.tc.engine.Timeout)-rounding
}

// shorten lets an owner renew its lease with short windows.
func (s *server) shorten(mutex, contender string, ttl, transition time.Duration) {
	s.tc.t.Helper()
	asked := time.Now()
	o, err := s.b.Guard(context.Background(), simba.GuardRequest{Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition})
	if s.isLate(err, asked, ttl+transition) {
		return
	}
	if err == nil && o.Status == simba.StatusLost && time.Since(asked) >= ttl+transition-rounding {
		return
	}
	s.commit(o.Seq, err)
	if o.Status != simba.StatusRenewed {
		s.tc.t.Fatalf("GUARD: %s should renew %s, got %s", contender, mutex, show(o))
	}
}

// expire calls shorten, and waits until the lease has ended.
func (s *server) expire(mutex, contender string, ttl time.Duration) {
	s.tc.t.Helper()
	s.shorten(mutex, contender, ttl, 0)
	s.awaitNoOwner(mutex)
}

func (s *server) awaitNoOwner(mutex string) {
	s.tc.t.Helper()
	s.tc.await("the lease ends", func() bool { return s.owner(mutex).Owner == "" })
}

// acquireIfInTime is mustAcquire with a short lease. It returns false if the answer came after the
// lease.
func (s *server) acquireIfInTime(mutex, contender string, ttl, transition time.Duration) (o simba.Outcome, inTime bool) {
	s.tc.t.Helper()
	asked := time.Now()
	o, _, err := s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition})
	if s.isLate(err, asked, ttl+transition) {
		return o, false
	}
	s.commit(o.Seq, err)
	if o.Status != simba.StatusAcquired || o.Owner != contender || o.Token == 0 {
		s.tc.t.Fatalf("ACQUIRE: %s should acquire %s, got %s", contender, mutex, show(o))
	}
	return o, true
}

// blockIfInTime is block for a mutex with a short lease. The waiter is nil if the contender
// acquired the mutex at once.
func (s *server) blockIfInTime(mutex, contender string) *waiter {
	s.tc.t.Helper()
	x, o := s.acquireWait(simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: long})
	if x == nil && o.Status != simba.StatusAcquired {
		s.tc.t.Fatalf("ACQUIRE … WAIT: %s should wait for %s, got %s", contender, mutex, show(o))
	}
	return x
}

// blockBehind lets b wait at this server for the end of a's short lease, which other grants. The waiter
// is nil if the lease ended too soon.
func (s *server) blockBehind(other *server, mutex string, lease time.Duration) *waiter {
	s.tc.t.Helper()
	if _, inTime := other.acquireIfInTime(mutex, "a", lease, 0); !inTime {
		return nil
	}
	return s.blockIfInTime(mutex, "b")
}

const longestLease = time.Minute

// withLease calls steps with a new mutex. steps returns false if the lease ended too soon. Then
// withLease calls it again with a lease twice as long.
func (tc *testCase) withLease(lease time.Duration, steps func(mutex string, lease time.Duration) (inTime bool)) {
	tc.t.Helper()
	for ; !steps(tc.mutex(), lease); lease *= 2 {
		if lease > longestLease {
			tc.t.Fatalf("the machine is too slow for this test, even with a lease of %v", lease)
		}
	}
}
