package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
)

func sharedQueueRules() []rule {
	return []rule{
		{"7s", "first come, first served across servers", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			servers := [2]*server{one, two}
			one.mustAcquire(m, "owner", long, 0)
			var waiting []*waiter
			for i := range 10 {
				waiting = append(waiting, servers[i%2].block(m, fmt.Sprintf("c%02d", 99-i), long, 0))
			}
			last := "owner"
			for i, x := range waiting {
				servers[i/2%2].mustRelease(m, last)
				last = x.granted().Owner
			}
		}},
		{"queue-s", "QUEUE lists the waiters of all servers", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			one.mustAcquire(m, "a", long, 0)
			one.block(m, "b", long, 0)
			two.block(m, "c", long, 0)
			two.mustQueue(m, "d", sec)
			one.mustQueue(m, "e", sec)
			for _, s := range []*server{one, two} {
				tc.equal("queue", s.queue(m), []string{"b", "c", "d", "e"})
				for _, q := range s.queueEntries(m, 10) {
					if q.Blocked != (q.Contender <= "c") {
						tc.t.Errorf("QUEUE entry %+v: want b and c blocked, d and e not", q)
					}
				}
				if o := s.owner(m); o.Waiters != 4 {
					tc.t.Errorf("OWNER reports %d waiters, want 4", o.Waiters)
				}
			}
		}},
		{"reconnect-s", "a waiter that reconnects to another server keeps its queue entry", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			for _, s := range []*server{one, two} {
				s.b.SetQueueGrace(long)
			}
			one.mustAcquire(m, "a", long, 0)
			b := one.block(m, "b", long, 0)
			c := one.block(m, "c", long, 0)
			b.end(simba.EndGone)
			if o := two.mustQueue(m, "b", long); o.Position != 1 {
				tc.t.Errorf("ACQUIRE of b at the other server: %s; want queued at its old position 1", show(o))
			}
			tc.equal("queue", two.queue(m), []string{"b", "c"})
			b = two.block(m, "b", renewable, 0)
			one.mustRelease(m, "a") // at once: the first server must know by now that b waits elsewhere
			b.granted()
			two.mustRelease(m, "b")
			c.granted()
		}},
		{"retry-s", "a contender that waits at two servers is granted one tenure", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			a := one.mustAcquire(m, "a", long, 0)
			first := one.block(m, "b", renewable, 0)
			second := two.block(m, "b", renewable, 0)
			one.mustRelease(m, "a")
			var got *waiter
			select {
			case <-first.woken:
				got = first
			case <-second.woken:
				got = second
			case <-time.After(tc.patience()):
				tc.t.Fatal("neither of b's connections was woken")
			}
			o := got.end(simba.EndWoken)
			// The second connection may have taken over the first one's queue entry.
			if got == first && o.Status != simba.StatusAcquired {
				o = second.granted()
			}
			if o.Status != simba.StatusAcquired || o.Owner != "b" || o.Token <= a.Token {
				tc.t.Fatalf("b, end of the wait: %s; want acquired with a larger token", show(o))
			}
			if t := two.owner(m); t.Owner != "b" || t.Token != o.Token {
				tc.t.Errorf("OWNER: %+v; want b with its token", t)
			}
			if o := two.acquire(m, "b", renewable, 0); o.Status != simba.StatusRenewed {
				tc.t.Errorf("ACQUIRE of b after its grant: %s; want renewed", show(o))
			}
			two.mustRelease(m, "b")
			other := first
			if got == first {
				other = second
			}
			if !other.ended {
				other.end(simba.EndLeft)
			}
			if t := one.owner(m); t.Owner == "b" {
				one.release(m, "b") // a later tenure, which the other wait was granted
			}
			one.mustAcquire(m, "c", long, 0)
		}},
		{"reservation-s", "a polling waiter is notified of a release elsewhere, and the mutex is reserved on all servers", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			for _, s := range []*server{one, two} {
				s.b.SetHandoffWindow(long)
			}
			one.mustAcquire(m, "a", long, 0)
			two.poll(m, "b", sec)
			one.mustRelease(m, "a")
			two.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			for _, s := range []*server{one, two} {
				if o := s.acquire(m, "c", sec, 0); o.Status != simba.StatusQueued || o.Owner != "" || o.Transition <= 0 {
					tc.t.Errorf("ACQUIRE of c during b's reservation: %s; want queued without an owner", show(o))
				}
			}
			two.mustAcquire(m, "b", long, 0)
		}},
		{"next-waiter", "a reservation missed at one server goes to a waiter at the other", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			for _, s := range []*server{one, two} {
				s.b.SetHandoffWindow(200 * ms)
			}
			one.mustAcquire(m, "a", long, 0)
			two.poll(m, "b", sec)
			c := one.block(m, "c", long, 0)
			two.release(m, "nobody")
			one.mustRelease(m, "a")
			c.granted()
		}},
	}
}

func sharedNoticeRules() []rule {
	return []rule{
		{"notices-s", "a tenure and its release are announced on every server with a subscriber", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			channel := simba.MutexChannel(m)
			one.subscribe(channel)
			two.subscribe(channel)
			one.mustAcquire(m, "a", long, 0)
			awaitBoth(one, two, channel, "acquired@@a")
			one.guard(m, "a", long, 0, 0)
			one.mustRelease(m, "a")
			awaitBoth(one, two, channel, "acquired@@a", "released@@a")
			two.mustAcquire(m, "b", long, 0)
			awaitBoth(one, two, channel, "acquired@@a", "released@@a", "acquired@@b")
		}},
		{"7s", "a handoff between servers announces no free mutex", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			channel := simba.MutexChannel(m)
			one.subscribe(channel)
			two.subscribe(channel)
			one.mustAcquire(m, "a", long, 0)
			awaitBoth(one, two, channel, "acquired@@a")
			b := two.block(m, "b", long, 0)
			one.mustRelease(m, "a")
			b.granted()
			awaitBoth(one, two, channel, "acquired@@a", "acquired@@b")
		}},
		{"notices-s", "a pattern subscriber gets notices of other servers", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			two.psubscribe("simba:*")
			one.mustAcquire(m, "a", long, 0)
			two.awaitNotices(simba.MutexChannel(m), "acquired@@a")
		}},
		{"notices-s", "each event of another server is published once", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			channel := simba.EventChannel(m)
			one.subscribe(channel)
			two.subscribe(channel)
			for i, step := range []struct {
				do   func()
				want string
			}{
				{func() { one.mustAcquire(m, "a", long, 0) }, `"event":"acquired"`},
				{func() { one.mustRelease(m, "a") }, `"event":"released"`},
				{func() { two.mustAcquire(m, "b", long, 0) }, `"event":"acquired"`},
				{func() { one.breakTenure(m, "stuck") }, `"event":"broken"`},
			} {
				step.do()
				for k, s := range []*server{one, two} {
					tc.await(fmt.Sprintf("server %d publishes %s", k+1, step.want), func() bool { return len(s.broker.publishedOn(channel)) > i })
					got := s.broker.publishedOn(channel)
					// Some stores do not record how a tenure ended. Then the server reports a
					// release.
					last := strings.Replace(got[len(got)-1], `"broken"`, `"released"`, 1)
					if len(got) != i+1 || !strings.Contains(last, strings.Replace(step.want, `"broken"`, `"released"`, 1)) || !strings.Contains(last, m) {
						tc.t.Errorf("server %d published %q; want %d events, the last with %s", k+1, got, i+1, step.want)
					}
				}
			}
			// A server's history also has events of the other server.
			tc.equal("history", one.eventsOf(m)[:3], []string{"acquired a", "released a", "acquired b"})
			tc.equal("history", two.eventsOf(m)[:3], []string{"acquired a", "released a", "acquired b"})
		}},
		{"notices-s", "a handoff at another server is announced as a release", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			two.subscribe(simba.EventChannel(m))
			one.mustAcquire(m, "a", long, 0)
			tc.await("the tenure of a is published", func() bool { return len(two.eventsOf(m)) > 0 })
			b := one.block(m, "b", long, 0)
			one.mustRelease(m, "a")
			b.granted()
			tc.await("the tenure of b is published", func() bool { return slices.Contains(two.eventsOf(m), "acquired b") })
			events := slices.DeleteFunc(two.eventsOf(m), func(e string) bool { return e == "queued b" })
			tc.equal("history", events, []string{"acquired a", "released a", "acquired b"})
		}},
		{"notices-s", "expiry is published on a server that only has a subscriber", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			channel := simba.EventChannel(m)
			two.subscribe(channel)
			// The tenure begins even if the reply is late.
			one.acquireIfInTime(m, "a", 300*ms, 0)
			tc.await("the end of the tenure is published", func() bool {
				got := strings.Join(two.broker.publishedOn(channel), " ")
				return strings.Contains(got, `"acquired"`) && (strings.Contains(got, `"expired"`) || strings.Contains(got, `"released"`))
			})
		}},
	}
}

// awaitBoth waits until both servers have published the payloads on a channel.
func awaitBoth(one, two *server, channel string, want ...string) {
	one.tc.t.Helper()
	one.awaitNotices(channel, want...)
	two.awaitNotices(channel, want...)
}
