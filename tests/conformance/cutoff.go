package conformance

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

// In these rules the link affects one server, and another server has its own connection to the
// store.

func cutOffRules() []rule {
	return []rule{
		{"1", "over a slow network no reply overstates the rest of a lease", link | direct, func(tc *testCase) {
			far, near := tc.server(), tc.directServer()
			for _, how := range []string{"acquired", "renewed", "handed on"} {
				tooLong := 0
				tc.withLease(800*ms, func(m string, lease time.Duration) bool {
					o, excess, inTime := tc.excessLease(far, near, how, m, lease)
					if !inTime || excess <= rounding {
						return inTime
					}
					// Only an excess in three tries is an error, since a busy machine may delay the
					// test after the reply.
					if tooLong++; tooLong == 3 {
						tc.t.Errorf("%s: another contender is the owner, and a's lease has %v left: %s",
							how, excess, show(o))
					}
					return tooLong == 3
				})
			}
		}},
		{"1", "an owner whose server is cut off keeps its lease to the end", link | direct, func(tc *testCase) {
			far, near := tc.server(), tc.directServer()
			tc.withLease(sec, func(m string, lease time.Duration) bool {
				sent := time.Now()
				a, inTime := far.acquireIfInTime(m, "a", lease/2, lease/2)
				if !inTime {
					return false
				}
				tc.engine.Link.Blackhole()
				tc.await("the lease ends", func() bool {
					o := near.acquireNoQueue(m, "b", long, 0)
					if o.Status == simba.StatusBusy && (o.Owner != "a" || o.Token != a.Token) && time.Since(sent) < lease-rounding {
						tc.t.Errorf("ACQUIRE of b, %v after a's lease began: %s; want busy with a as the owner",
							time.Since(sent), show(o))
					}
					return o.Status == simba.StatusAcquired
				})
				if took := time.Since(sent); took < lease-rounding {
					tc.t.Errorf("b acquired the mutex %v after a's request, before a's lease had ended", took)
				}
				tc.engine.Link.Heal()
				o := far.guardAgain(m, "a", 0)
				if o.Status != simba.StatusLost || o.Owner != "b" {
					tc.t.Errorf("GUARD of a after the partition: %s; want lost with b as the owner", show(o))
				}
				if t := far.owner(m); t.Owner != "b" {
					tc.t.Errorf("OWNER at a's server after the partition: %+v; want b", t)
				}
				return true
			})
		}},
		{"9s", "a waiter whose server is cut off delays nobody for longer than its lease", link | direct, func(tc *testCase) {
			far, near := tc.server(), tc.directServer()
			m := tc.mutex()
			near.mustAcquire(m, "a", long, 0)
			x := far.block(m, "x", 2*sec, 0)
			b := near.block(m, "b", 10*sec, 0)
			tc.engine.Link.Blackhole()
			near.mustRelease(m, "a")
			b.awaitWake()
			o := b.end(simba.EndWoken)
			if o.Status != simba.StatusAcquired {
				tc.t.Fatalf("b, woken: %s; want acquired", show(o))
			}
			sure := time.Now().Add(o.Transition)
			tc.engine.Link.Heal()
			// x must not get the mutex before b's lease has ended.
			pause(500 * ms)
			if x.isWoken() {
				if o := x.end(simba.EndWoken); o.Status == simba.StatusAcquired && time.Now().Before(sure) {
					tc.t.Errorf("x, end of the wait: %s; want no grant while b owns the mutex", show(o))
				}
				return
			}
			near.releaseAgain(m, "b")
			x.granted()
		}},
		{"outage", "a request that arrives after its deadline affects no owner", link | direct, func(tc *testCase) {
			far, near := tc.server(), tc.directServer()
			m := tc.mutex()
			far.owner(m)
			tc.engine.Link.Blackhole()
			for _, r := range []simba.AcquireRequest{
				{Mutex: m, Contender: "x", TTL: sec},
				{Mutex: m, Contender: "y", TTL: sec, Waiter: noWaiter{}},
			} {
				_, _, err := far.b.Acquire(context.Background(), r)
				tc.mustBeUnavailable("acquire", err)
			}
			b := near.mustAcquire(m, "b", long, 0)
			tc.engine.Link.Heal()
			far.ownerAgain(m)
			tc.during(500*ms, "b owns the mutex", func() bool { return near.owner(m).Token == b.Token })
			c := near.block(m, "c", long, 0)
			near.mustRelease(m, "b")
			c.granted() // if x's late request was granted a lease, c waits for its end
		}},
	}
}

// excessLease makes contender "a" the owner of a mutex through the far server, over a slow network.
// It waits until the lease has ended. The result excess is the time by which the last reply to "a"
// overstated the lease. inTime is false if no reply about a lease arrived in time.
func (tc *testCase) excessLease(far, near *server, how, m string, ttl time.Duration) (o simba.Outcome, excess time.Duration, inTime bool) {
	tc.t.Helper()
	far.mustAcquire(m, "a", long, 0)
	if how != "renewed" {
		far.mustRelease(m, "a")
	}
	tc.engine.Link.Delay(50 * ms)
	defer tc.engine.Link.Heal()
	switch how {
	case "acquired":
		if o, inTime = far.acquireIfInTime(m, "a", ttl, 0); !inTime {
			return o, 0, false
		}
	case "renewed":
		asked := time.Now()
		var err error
		o, err = far.b.Guard(context.Background(), simba.GuardRequest{Mutex: m, Contender: "a", TTL: ttl})
		if far.isLate(err, asked, ttl) {
			return o, 0, false
		}
		far.commit(o.Seq, err)
	case "handed on":
		near.mustAcquire(m, "b", long, 0)
		a := far.block(m, "a", ttl, 0)
		near.mustRelease(m, "b")
		a.awaitWake()
		if o = a.end(simba.EndWoken); o.Status == simba.StatusWaiting {
			return o, 0, false
		}
	}
	sure := time.Now().Add(o.Transition)
	tc.await("the lease ends", func() bool { return near.acquireNoQueue(m, "c", sec, 0).Status == simba.StatusAcquired })
	return o, time.Until(sure), true
}
