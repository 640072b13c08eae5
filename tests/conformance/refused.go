package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
)

// In these rules the store refuses the engine's requests, until an operator corrects the store.

func refusedRules() []rule {
	return []rule{
		{"refused", "requests and waiters get the misconfiguration, and succeed when it is corrected", harm, func(tc *testCase) {
			s := tc.server()
			tc.withLease(2*sec, func(m string, lease time.Duration) bool {
				_, x, mend := tc.blockThenHarm(s, m, lease)
				if x == nil {
					return false
				}
				tc.mustBeMisconfigured("acquire", s.awaitRefusal(m, "b"))
				x.awaitWake() // when a's lease has ended, or earlier
				x.ended = true
				_, err := x.ticket.End(simba.EndWoken)
				tc.mustBeMisconfigured("the wait", err)
				tc.mustBeMisconfigured("acquire after it", s.awaitRefusal(m, "b"))

				mend()
				s.awaitAcquire(m, "c") // x was granted no lease that could delay c
				y := s.block(m, "y", long, 0)
				s.mustRelease(m, "c")
				y.granted()
				return true
			})
		}},
		{"refused", "a wait ends with the misconfiguration once, and works again when it is corrected", harm, func(tc *testCase) {
			s := tc.server()
			tc.withLease(2*sec, func(m string, lease time.Duration) bool {
				a, x, mend := tc.blockThenHarm(s, m, lease)
				if x == nil {
					return false
				}
				x.awaitWake()
				x.ended = true
				_, err := x.ticket.End(simba.EndWoken)
				tc.mustBeMisconfigured("the wait", err)
				mend()
				s.awaitAcquire(m, "x")
				if o := s.owner(m); o.Owner != "x" || o.Token <= a.Token {
					tc.t.Errorf("OWNER after the fault was mended: %+v; want x with a larger token than %d",
						o, a.Token)
				}
				return true
			})
		}},
	}
}

// blockThenHarm lets x wait for a mutex that a owns, and then harms the store. The returned waiter
// is nil if these steps took longer than a's lease. Then x may have been granted the mutex already.
func (tc *testCase) blockThenHarm(s *server, m string, lease time.Duration) (a simba.Outcome, x *waiter, mend func()) {
	tc.t.Helper()
	asked := time.Now()
	a, inTime := s.acquireIfInTime(m, "a", lease, 0)
	if !inTime {
		return a, nil, nil
	}
	if x = s.blockIfInTime(m, "x"); x == nil {
		return a, nil, nil
	}
	mend = tc.engine.Harm(tc.t, m)
	if time.Since(asked) >= lease-rounding {
		mend()
		return a, nil, nil
	}
	return a, x, mend
}

// awaitRefusal repeats an ACQUIRE until it returns an error that is no UnavailableError, and
// returns that error.
func (s *server) awaitRefusal(mutex, contender string) error {
	s.tc.t.Helper()
	var err error
	s.tc.await("the store refuses", func() bool {
		_, _, err = s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: sec, NoQueue: true})
		lost := (*simba.UnavailableError)(nil)
		return err != nil && !errors.As(err, &lost)
	})
	return err
}

func (s *server) awaitAcquire(mutex, contender string) {
	s.tc.t.Helper()
	s.tc.await(contender+" acquires", func() bool {
		o, _, err := s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: long})
		if err == nil {
			err = s.b.Commit(o.Seq)
		}
		return err == nil && o.Owner == contender
	})
}

// mustBeMisconfigured checks that err is a MisconfiguredError of the engine, in one line.
func (tc *testCase) mustBeMisconfigured(what string, err error) {
	tc.t.Helper()
	e := &simba.MisconfiguredError{}
	_ = errors.As(err, &e)
	tc.mustName(what, err, "a MisconfiguredError", e.Engine, e.Err)
}
