package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
)

// loseReply calls do, and drops the reply to the first request that names the mutex. It returns the
// error of do, which is nil or an UnavailableError.
func (tc *testCase) loseReply(m string, do func() error) error {
	tc.t.Helper()
	lost := tc.engine.Link.DropReplyTo(m)
	err := do()
	if err != nil {
		tc.mustBeUnavailable("a lost reply", err)
	}
	select {
	case <-lost:
	case <-time.After(tc.patience()):
		tc.t.Fatalf("the engine sent no request that names the mutex %s", m)
	}
	return err
}

func lostReplyRules() []rule {
	return []rule{
		{"lost", "an ACQUIRE repeated after a lost reply gets the same tenure", link, func(tc *testCase) {
			s := tc.server()
			other := s
			if tc.engine.Shared {
				other = tc.server()
			}
			for range 5 {
				m := tc.mutex()
				s.mustAcquire(m, "before", long, 0)
				s.mustRelease(m, "before")
				var o simba.Outcome
				err := tc.loseReply(m, func() (err error) {
					o, _, err = s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: m, Contender: "a", TTL: long})
					return err
				})
				if err == nil && (o.Owner != "a" || o.Token == 0) {
					tc.t.Fatalf("ACQUIRE whose reply was lost: %s; want a as the owner, or an error", show(o))
				}
				seen := other.ownerAgain(m)
				if seen.Owner != "" && seen.Owner != "a" || err == nil && seen.Token != o.Token {
					tc.t.Fatalf("OWNER: %+v; want what ACQUIRE had returned: %s, %v", seen, show(o), err)
				}
				again := s.acquireAgain(m, "a", long)
				switch {
				case again.Owner != "a":
					tc.t.Fatalf("ACQUIRE repeated: %s; want a as the owner", show(again))
				case seen.Owner == "a" && (again.Status != simba.StatusRenewed || again.Token != seen.Token):
					tc.t.Errorf("ACQUIRE repeated: %s; want renewed with the token that OWNER had reported: %+v",
						show(again), seen)
				}
				tc.equal("queue", s.queue(m), nil)
				s.mustRelease(m, "a")
				if o := other.owner(m); o.Owner != "" {
					tc.t.Errorf("OWNER after one release: %+v; want no owner", o)
				}
			}
		}},
		{"lost", "a GUARD repeated after a lost reply renews", link, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			a := s.mustAcquire(m, "a", long, 0)
			for range 3 {
				_ = tc.loseReply(m, func() error {
					_, err := s.b.Guard(context.Background(), simba.GuardRequest{Mutex: m, Contender: "a", TTL: long, Token: a.Token})
					return err
				})
				o := s.guardAgain(m, "a", a.Token)
				if o.Status != simba.StatusRenewed || o.Token != a.Token {
					tc.t.Errorf("GUARD whose reply was lost: %s; want renewed with a's token", show(o))
				}
			}
		}},
		{"lost", "a RELEASE whose reply was lost hands off", link, func(tc *testCase) {
			for range 3 {
				s, m := tc.held()
				b := s.block(m, "b", long, 0)
				_ = tc.loseReply(m, func() error {
					_, _, err := s.b.Release(context.Background(), simba.ReleaseRequest{Mutex: m, Contender: "a"})
					return err
				})
				b.awaitWake()
				o := b.endAgain()
				if o.Owner != "b" {
					tc.t.Errorf("b, granted by a release whose reply was lost: %s; want b as the owner", show(o))
				}
				if s.releaseAgain(m, "a") {
					tc.t.Error("RELEASE repeated after the handoff returned 1, want 0")
				}
				if o := s.owner(m); o.Owner != "b" {
					tc.t.Errorf("OWNER after the repeated release: %+v; want b", o)
				}
			}
		}},
		{"lost", "a RELEASE may be repeated after a lost reply, and the mutex is free", link, func(tc *testCase) {
			s, m := tc.held()
			_ = tc.loseReply(m, func() error {
				_, _, err := s.b.Release(context.Background(), simba.ReleaseRequest{Mutex: m, Contender: "a"})
				return err
			})
			s.releaseAgain(m, "a")
			s.mustAcquire(m, "b", long, 0)
		}},
		{"lost", "a BREAK whose reply was lost hands off", link, func(tc *testCase) {
			s, m := tc.held()
			b := s.block(m, "b", long, 0)
			_ = tc.loseReply(m, func() error {
				_, _, err := s.b.Break(context.Background(), m, "stuck")
				return err
			})
			b.awaitWake()
			if o := b.endAgain(); o.Owner != "b" {
				tc.t.Errorf("b, woken: %s; want b as the owner", show(o))
			}
		}},
		{"lost", "a waiter whose reply was lost may ask again", link, func(tc *testCase) {
			s := tc.server()
			for _, held := range []bool{false, true} {
				m := tc.mutex()
				s.mustAcquire(m, "a", long, 0)
				if !held {
					s.mustRelease(m, "a")
				}
				var x *waiter
				_ = tc.loseReply(m, func() error {
					x = &waiter{s: s, mutex: m, name: "b", woken: make(chan struct{})}
					_, ticket, err := s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: m, Contender: "b", TTL: long, Waiter: x})
					x.ticket = ticket
					if ticket != nil {
						s.waits = append(s.waits, x)
					}
					return err
				})
				o := s.acquireAgain(m, "b", long)
				if !held && o.Owner != "b" {
					tc.t.Errorf("ACQUIRE of b repeated: %s; want b as the owner", show(o))
				}
				if held {
					tc.equal("queue", s.queue(m), []string{"b"})
					if x.ticket == nil {
						x = s.block(m, "b", long, 0)
					}
					s.mustRelease(m, "a")
					x.granted()
				}
				s.mustRelease(m, "b")
				if o := s.owner(m); o.Owner != "" {
					tc.t.Errorf("OWNER after one release: %+v; want no owner", o)
				}
			}
		}},
		{"lost", "a waiter whose leaving was not confirmed delays nobody", link, func(tc *testCase) {
			for _, why := range []simba.EndReason{simba.EndGone, simba.EndTimeout} {
				s, m := tc.held()
				b := s.block(m, "b", 2*sec, 0)
				c := s.block(m, "c", long, 0)
				tc.engine.Link.DropReplyTo(m) // has no effect if the engine needs no request
				b.ended = true
				o, err := b.ticket.End(why)
				if err != nil {
					tc.mustBeUnavailable("the end of b's wait", err)
				} else if o.Status == simba.StatusAcquired {
					tc.t.Errorf("b, end of the wait: %s; want no grant", show(o))
				}
				s.releaseAgain(m, "a")
				c.awaitWake()
				if o := c.endAgain(); o.Owner != "c" {
					tc.t.Errorf("c, woken after b had left: %s; want c as the owner", show(o))
				}
				tc.engine.Link.Heal()
			}
		}},
		{"lost", "a grant that could not be confirmed is returned to a repeated request", link | shared, func(tc *testCase) {
			one, two, m := tc.pair()
			one.mustAcquire(m, "a", long, 0)
			b := two.block(m, "b", long, 0)
			one.mustRelease(m, "a")
			b.awaitWake()
			tc.engine.Link.DropReplyTo(m) // has no effect if the engine needs no request
			if o := b.endAgain(); o.Owner != "b" {
				tc.t.Errorf("b, woken: %s; want b as the owner", show(o))
			}
			tc.engine.Link.Heal()
			if o := one.ownerAgain(m); o.Owner != "b" {
				tc.t.Errorf("OWNER after the handoff: %+v; want b", o)
			}
		}},
	}
}

// endAgain ends a wait after the waiter was woken. If the engine returns an UnavailableError,
// endAgain repeats the request until there is a reply.
func (x *waiter) endAgain() simba.Outcome {
	x.s.tc.t.Helper()
	x.ended = true
	o, err := x.ticket.End(simba.EndWoken)
	if unavailable := (*simba.UnavailableError)(nil); errors.As(err, &unavailable) {
		return x.s.acquireAgain(x.mutex, x.name, long)
	}
	x.s.commit(o.Seq, err)
	return o
}
