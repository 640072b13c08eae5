package backendtest

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

func pollingRules() []rule {
	return []rule{
		{"turn", "a polling waiter that listens is told of its turn, and the mutex is kept for it", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetHandoffWindow(long)
			s.mustAcquire(m, "a", long, 0)
			s.subscribeContender(m, "b")
			s.mustQueue(m, "b", sec)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			o := s.acquire(m, "c", sec, 0)
			if o.Status != simba.StatusQueued || o.Owner != "" || o.Token != 0 || o.Position != 2 {
				tc.t.Errorf("c in b's turn: %s", show(o))
			}
			if o.Transition <= 0 || o.Transition > long {
				tc.t.Errorf("c would ask again after %v", o.Transition)
			}
			if t := s.owner(m); t.Owner != "" {
				tc.t.Errorf("a kept mutex has owner %q", t.Owner)
			}
			s.mustAcquire(m, "b", sec, 0)
		}},
		{"turn", "a polling waiter that is told is first in line before blocked ones", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetHandoffWindow(long)
			s.mustAcquire(m, "a", long, 0)
			s.subscribeContender(m, "b")
			s.mustQueue(m, "b", sec)
			c := s.block(m, "c", long, 0)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			if c.isWoken() {
				tc.t.Error("c was woken in b's turn")
			}
			s.mustAcquire(m, "b", long, 0)
			s.mustRelease(m, "b")
			c.granted()
		}},
		{"pass", "a missed turn goes to the next in line", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetHandoffWindow(200 * ms)
			s.mustAcquire(m, "a", long, 0)
			s.subscribeContender(m, "b")
			s.mustQueue(m, "b", sec)
			c := s.block(m, "c", long, 0)
			sent := time.Now()
			s.mustRelease(m, "a")
			c.granted()
			if took := time.Since(sent); took < 200*ms-rounding {
				tc.t.Errorf("c's turn came after %v", took)
			}
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
		}},
		{"pass", "a missed turn that nobody else waits for leaves it free", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetHandoffWindow(200 * ms)
			s.mustAcquire(m, "a", long, 0)
			s.subscribeContender(m, "b")
			s.mustQueue(m, "b", sec)
			s.mustRelease(m, "a")
			tc.await("the turn ends", func() bool { return s.acquireNoQueue(m, "c", long, 0).Status == simba.StatusAcquired })
		}},
		{"pass", "a subscriber that has left loses its turn at once", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetHandoffWindow(long)
			s.mustAcquire(m, "a", long, 0)
			s.subscribeContender(m, "b")
			s.mustQueue(m, "b", sec)
			c := s.block(m, "c", long, 0)
			s.broker.unsubscribe(simba.ContenderChannel(m, "b"))
			s.mustRelease(m, "a")
			c.granted()
		}},
		{"pass", "leaving in one's turn passes it on", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetHandoffWindow(long)
			s.mustAcquire(m, "a", long, 0)
			s.subscribeContender(m, "b")
			s.mustQueue(m, "b", sec)
			c := s.block(m, "c", long, 0)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			if s.release(m, "b") {
				tc.t.Error("b owned nothing")
			}
			c.granted()
		}},
		{"8", "a polling waiter that cannot be reached holds up nobody", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetHandoffWindow(long)
			s.mustAcquire(m, "a", long, 0)
			s.mustQueue(m, "mute", sec)
			c := s.block(m, "c", long, 0)
			s.mustRelease(m, "a")
			c.granted()
		}},
		{"place", "a polling waiter that cannot be reached keeps its place", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.mustAcquire(m, "a", long, 0)
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
		{"place", "a waiter that subscribes while it is free is told", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.mustAcquire(m, "a", long, 0)
			s.mustQueue(m, "b", sec)
			s.mustRelease(m, "a")
			if got := s.broker.publishedOn(simba.ContenderChannel(m, "b")); len(got) != 0 {
				tc.t.Errorf("told without a subscription: %q", got)
			}
			s.subscribeContender(m, "b")
			s.awaitOnly(simba.ContenderChannel(m, "b"), "released@@a")
		}},
		{"window-0", "a handoff window of zero is free for all", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetHandoffWindow(0)
			s.mustAcquire(m, "a", long, 0)
			for _, c := range []string{"b", "c"} {
				s.subscribeContender(m, c)
				s.mustQueue(m, c, long)
			}
			s.mustRelease(m, "a")
			for _, c := range []string{"b", "c"} {
				s.awaitNotices(simba.ContenderChannel(m, c), "released@@a")
			}
			s.mustAcquire(m, "stranger", long, 0)
		}},
		{"window-0", "a blocked waiter is granted behind those who are told and do not come", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetHandoffWindow(0)
			s.mustAcquire(m, "a", long, 0)
			s.subscribeContender(m, "b")
			s.mustQueue(m, "b", long)
			d := s.block(m, "d", long, 0)
			s.mustRelease(m, "a")
			d.granted()
		}},
		{"9", "a polling waiter lapses after the grace, and not before", 0, func(tc *testCase) {
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
				tc.await("b's place lapses", func() bool { return len(s.queue(m)) == 0 })
				if took := time.Since(sent); took < lease+300*ms-rounding {
					tc.t.Errorf("b's place lapsed after %v", took)
				}
				return true
			})
		}},
		{"9", "a polling waiter that goes on asking keeps its place", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetQueueGrace(2 * sec)
			s.mustAcquire(m, "a", long, 0)
			s.mustQueue(m, "b", sec)
			s.breakIt(m, "")
			tc.await("b is passed over", func() bool { return s.acquireNoQueue(m, "c", long, 0).Status == simba.StatusAcquired })
			for range 20 {
				if o := s.acquire(m, "b", sec, 0); o.Status != simba.StatusQueued || o.Position != 1 {
					tc.t.Fatalf("%s", show(o))
				}
				pause(20 * ms)
			}
		}},
		{"9", "an owner whose lease ends long after its waiters asked finds them waiting", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.b.SetQueueGrace(0)
			s.mustAcquire(m, "a", long, 0)
			s.mustQueue(m, "b", sec)
			pause(300 * ms)
			tc.equal("queue", s.queue(m), []string{"b"}) // until the end of the lease that it knows
		}},
	}
}
