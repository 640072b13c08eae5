package conformance

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

func pollingRules() []rule {
	return []rule{
		{"reservation", "a subscribed polling waiter is notified, and the mutex is reserved for it", 0, func(tc *testCase) {
			s, m := tc.polled(long)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			o := s.acquire(m, "c", sec, 0)
			if o.Status != simba.StatusQueued || o.Owner != "" || o.Token != 0 || o.Position != 2 {
				tc.t.Errorf("ACQUIRE of c during b's reservation: %s; want queued at position 2 without an owner",
					show(o))
			}
			if o.Transition <= 0 || o.Transition > long {
				tc.t.Errorf("ACQUIRE of c during b's reservation reports %v left; want more than 0", o.Transition)
			}
			if t := s.owner(m); t.Owner != "" {
				tc.t.Errorf("OWNER of a reserved mutex reports %q, want none", t.Owner)
			}
			s.mustAcquire(m, "b", sec, 0)
		}},
		{"reservation", "a notified polling waiter goes before blocked ones", 0, func(tc *testCase) {
			s, m := tc.polled(long)
			c := s.block(m, "c", long, 0)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			if c.isWoken() {
				tc.t.Error("c was woken during b's reservation")
			}
			s.mustAcquire(m, "b", long, 0)
			s.mustRelease(m, "b")
			c.granted()
		}},
		{"next-waiter", "a missed reservation goes to the next waiter", 0, func(tc *testCase) {
			s, m := tc.polled(200 * ms)
			c := s.block(m, "c", long, 0)
			sent := time.Now()
			s.mustRelease(m, "a")
			c.granted()
			if took := time.Since(sent); took < 200*ms-rounding {
				tc.t.Errorf("c got the mutex %v after the release, before b's reservation had ended", took)
			}
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
		}},
		{"next-waiter", "a polling waiter that has unsubscribed is skipped at once", 0, func(tc *testCase) {
			s, m := tc.polled(long)
			c := s.block(m, "c", long, 0)
			s.broker.unsubscribe(simba.ContenderChannel(m, "b"))
			s.mustRelease(m, "a")
			c.granted()
		}},
		{"next-waiter", "leaving during a reservation hands the mutex off", 0, func(tc *testCase) {
			s, m := tc.polled(long)
			c := s.block(m, "c", long, 0)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			if s.release(m, "b") {
				tc.t.Error("RELEASE of the waiter b returned 1, want 0")
			}
			c.granted()
		}},
		{"8", "an unreachable polling waiter delays nobody", 0, func(tc *testCase) {
			s, m := tc.held()
			s.b.SetHandoffWindow(long)
			s.mustQueue(m, "mute", sec)
			c := s.block(m, "c", long, 0)
			s.mustRelease(m, "a")
			c.granted()
		}},
		{"unreachable", "an unreachable polling waiter keeps its queue entry", 0, func(tc *testCase) {
			s, m := tc.held()
			s.mustQueue(m, "mute", sec)
			c := s.block(m, "c", long, 0)
			d := s.block(m, "d", long, 0)
			s.mustRelease(m, "a")
			c.granted()
			tc.equal("queue", s.queue(m), []string{"mute", "d"})
			now := s.block(m, "mute", long, 0)
			s.mustRelease(m, "c")
			now.granted()
			s.mustRelease(m, "mute")
			d.granted()
		}},
		{"unreachable", "a waiter that subscribes while the mutex is free is notified", 0, func(tc *testCase) {
			s, m := tc.held()
			s.mustQueue(m, "b", sec)
			s.mustRelease(m, "a")
			if got := s.broker.publishedOn(simba.ContenderChannel(m, "b")); len(got) != 0 {
				tc.t.Errorf("notices to a contender without a subscription: %q; want none", got)
			}
			s.subscribeContender(m, "b")
			s.awaitOnly(simba.ContenderChannel(m, "b"), "released@@a")
		}},
		{"window-0", "a handoff window of zero reserves nothing", 0, func(tc *testCase) {
			s, m := tc.held()
			s.b.SetHandoffWindow(0)
			for _, c := range []string{"b", "c"} {
				s.poll(m, c, long)
			}
			s.mustRelease(m, "a")
			for _, c := range []string{"b", "c"} {
				s.awaitNotices(simba.ContenderChannel(m, c), "released@@a")
			}
			s.mustAcquire(m, "stranger", long, 0)
		}},
		{"window-0", "a blocked waiter is granted after notified waiters that do not ask", 0, func(tc *testCase) {
			s, m := tc.polled(0)
			d := s.block(m, "d", long, 0)
			s.mustRelease(m, "a")
			d.granted()
		}},
		{"9", "the entry of a polling waiter expires after the grace, and not before", 0, func(tc *testCase) {
			s := tc.server()
			s.b.SetQueueGrace(300 * ms)
			tc.withLease(3*sec, func(m string, lease time.Duration) bool {
				sent := time.Now()
				if _, inTime := s.acquireIfInTime(m, "a", lease-sec, sec); !inTime {
					return false
				}
				if o := s.acquire(m, "b", long, 0); o.Status != simba.StatusQueued {
					return false // a's lease has ended
				}
				tc.await("b's entry expires", func() bool { return len(s.queue(m)) == 0 })
				if took := time.Since(sent); took < lease+300*ms-rounding {
					tc.t.Errorf("b's queue entry expired %v after a's request; want at least %v, a's lease and the grace", took, lease+300*ms)
				}
				return true
			})
		}},
		{"9", "a polling waiter that keeps asking keeps its queue entry", 0, func(tc *testCase) {
			s, m := tc.held()
			s.b.SetQueueGrace(2 * sec)
			s.mustQueue(m, "b", sec)
			s.breakTenure(m, "")
			tc.await("b is skipped", func() bool { return s.acquireNoQueue(m, "c", long, 0).Status == simba.StatusAcquired })
			for range 20 {
				if o := s.acquire(m, "b", sec, 0); o.Status != simba.StatusQueued || o.Position != 1 {
					tc.t.Fatalf("ACQUIRE of b, which was skipped: %s; want queued at position 1", show(o))
				}
				pause(20 * ms)
			}
		}},
		{"9", "polling waiters keep their entries until the lease that they saw ends", 0, func(tc *testCase) {
			s, m := tc.held()
			s.b.SetQueueGrace(0)
			s.mustQueue(m, "b", sec)
			pause(300 * ms)
			tc.equal("queue", s.queue(m), []string{"b"})
		}},
	}
}
