package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp"
)

func handoffRules() []rule {
	return []rule{
		{"8", "RELEASE grants the first blocked waiter its requested windows", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			a := s.mustAcquire(m, "a", long, 0)
			b := s.block(m, "b", 30*sec, 20*sec)
			c := s.block(m, "c", long, 0)
			sent := time.Now()
			s.mustRelease(m, "a")
			o := b.granted()
			if o.Token <= a.Token || o.Position != 0 {
				tc.t.Errorf("b, granted after the release: %s; want a larger token and no queue position", show(o))
			}
			tc.checkLeft("ttl", o.TTL, 30*sec, sent)
			tc.checkLeft("transition", o.Transition, 50*sec, sent)
			if c.isWoken() {
				tc.t.Error("c was woken, but only b, the first waiter, should be")
			}
			if t := s.owner(m); t.Owner != "b" || t.Token != o.Token || t.Waiters != 1 || t.TransitionAt-t.AcquiredAt != 50_000 {
				tc.t.Errorf("OWNER after the handoff: %+v; want b with its token and windows, and 1 waiter", t)
			}
		}},
		{"8", "expiry grants the next waiter by itself, and not before transition_at", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			a := s.mustAcquire(m, "a", long, 0)
			b := s.block(m, "b", long, 0)
			sent := time.Now()
			s.shorten(m, "a", 150*ms, 150*ms)
			o := b.granted()
			if took := time.Since(sent); took < 300*ms-rounding {
				tc.t.Errorf("b acquired the mutex %v after a's renewal, before a's lease had ended", took)
			}
			if o.Token <= a.Token {
				tc.t.Errorf("b's reply: %s; want a larger token than a's, %d", show(o), a.Token)
			}
		}},
		{"8", "each expiry grants the next waiter", 0, func(tc *testCase) {
			s, m := tc.held()
			var waiting []*waiter
			for _, c := range []string{"b", "c", "d"} {
				waiting = append(waiting, s.block(m, c, 100*ms, 0))
			}
			begun := time.Now()
			s.shorten(m, "a", 100*ms, 0)
			for i, x := range waiting {
				x.awaitWake()
				if took, leases := time.Since(begun), time.Duration(i+1)*100*ms; took < leases-rounding {
					tc.t.Errorf("%s was woken after %v, before the earlier leases of %v together had ended", x.name, took, leases)
				}
				x.end(simba.EndWoken)
			}
		}},
		{"8", "BREAK grants the next waiter", 0, func(tc *testCase) {
			s, m := tc.held()
			b := s.block(m, "b", long, 0)
			s.breakTenure(m, "stuck")
			b.granted()
		}},
		{"7", "first come, first served", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.mustAcquire(m, "owner", long, 0)
			var waiting []*waiter
			for i := range 20 {
				// The alphabetical order of the names is the reverse of the order of the requests.
				waiting = append(waiting, s.block(m, fmt.Sprintf("c%02d", 99-i), long, 0))
			}
			last := "owner"
			for _, x := range waiting {
				s.mustRelease(m, last)
				last = x.granted().Owner
			}
		}},
		{"7", "a new contender is not served before the waiters", 0, func(tc *testCase) {
			s, m := tc.held()
			b, c := s.block(m, "b", long, 0), s.block(m, "c", long, 0)
			s.mustRelease(m, "a")
			if o := s.acquire(m, "late", sec, 0); o.Status != simba.StatusQueued {
				tc.t.Errorf("ACQUIRE of a contender behind blocked waiters: %s; want queued", show(o))
			}
			b.granted()
			s.mustRelease(m, "b")
			c.granted()
		}},
		{"8", "a timeout leaves the queue", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			a := s.mustAcquire(m, "a", long, 0)
			for _, why := range []simba.EndReason{simba.EndTimeout, simba.EndLeft} {
				b := s.block(m, "b", long, 0)
				o := b.end(why)
				if o.Status != simba.StatusTimeout || o.Owner != "a" || o.Token != a.Token || o.Position != 0 {
					tc.t.Errorf("the reply to the waiter that ends its wait: %s; want timeout with a as the owner",
						show(o))
				}
				tc.equal("queue", s.queue(m), nil)
			}
			s.mustRelease(m, "a")
			if o := s.owner(m); o.Owner != "" {
				tc.t.Errorf("OWNER after b has left and a has released: %+v; want no owner", o)
			}
		}},
		{"8", "a grant before the timeout is returned", 0, func(tc *testCase) {
			for _, why := range []simba.EndReason{simba.EndTimeout, simba.EndLeft} {
				s, m := tc.held()
				b := s.block(m, "b", long, 0)
				s.mustRelease(m, "a")
				b.awaitWake()
				o := b.end(why)
				if o.Status != simba.StatusAcquired || o.Owner != "b" {
					tc.t.Errorf("the reply to a waiter that ends its wait after the grant: %s; want acquired",
						show(o))
				}
				if t := s.owner(m); t.Owner != "b" || t.Token != o.Token {
					tc.t.Errorf("OWNER after the end of the wait: %+v; want b with its token", t)
				}
			}
		}},
		{"8", "the outcome of a wait is correct whenever it ends", 0, func(tc *testCase) {
			s := tc.server()
			for i := range 20 {
				m := tc.mutex()
				s.mustAcquire(m, "a", long, 0)
				b, c := s.block(m, "b", long, 0), s.block(m, "c", long, 0)
				released := make(chan bool)
				go func() {
					owned, seq, err := s.b.Release(context.Background(), simba.ReleaseRequest{Mutex: m, Contender: "a"})
					released <- owned && err == nil && s.b.Commit(seq) == nil
				}()
				if i%2 == 0 {
					pause(time.Duration(i) * 100 * time.Microsecond)
				}
				o := b.end(simba.EndTimeout)
				if !<-released {
					tc.t.Fatal("RELEASE of the owner a returned 0, want 1")
				}
				switch o.Status {
				case simba.StatusAcquired:
					s.mustRelease(m, "b")
				case simba.StatusTimeout:
				default:
					tc.t.Fatalf("b's reply: %s; want acquired or timeout", show(o))
				}
				c.granted()
			}
		}},
		{"8", "RELEASE by a waiter ends its wait on another connection", 0, func(tc *testCase) {
			s, m := tc.held()
			b := s.block(m, "b", long, 0)
			if s.release(m, "b") {
				tc.t.Error("RELEASE of the waiter b returned 1, want 0")
			}
			b.awaitWake()
			if o := b.end(simba.EndWoken); o.Status != simba.StatusTimeout || o.Owner != "a" {
				tc.t.Errorf("the reply to the waiter that RELEASE ended: %s; want timeout with a as the owner",
					show(o))
			}
			tc.equal("queue", s.queue(m), nil)
		}},
		{"6", "a waiter whose lease ends before the reply keeps waiting, and gets the next lease", 0, func(tc *testCase) {
			s, m := tc.held()
			b := s.block(m, "b", 200*ms, 0)
			s.mustRelease(m, "a")
			b.awaitWake()
			first := s.owner(m)
			tc.await("b's lease ends", func() bool { return s.owner(m).Owner == "" })
			pause(2 * rounding) // so that the lease has ended by this server's clock too
			s.mustAcquire(m, "c", long, 0)
			if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
				tc.t.Errorf("b, end of the wait after its lease had expired: %s; want waiting; the expired tenure: %+v",
					show(o), first)
			}
			tc.equal("queue", s.queue(m), []string{"b"})
			d := s.block(m, "d", long, 0)
			s.mustRelease(m, "c")
			var o simba.Outcome
			for b.awaitWake(); ; b.awaitWake() {
				if o = b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
					break
				}
				// b was too late again. Now d has the mutex, and b is next.
				last := d.granted().Owner
				d = s.block(m, last+"d", long, 0)
				s.mustRelease(m, last)
			}
			if o.Status != simba.StatusAcquired || o.Owner != "b" || o.Token <= first.Token {
				tc.t.Errorf("b's reply to its next grant: %s; want acquired with a larger token than in %+v",
					show(o), first)
			}
			d.granted()
		}},
		{"6", "a waiter whose lease ends before the reply leaves when its time is up", 0, func(tc *testCase) {
			s, m := tc.held()
			b := s.block(m, "b", 200*ms, 0)
			s.mustRelease(m, "a")
			b.awaitWake()
			tc.await("b's lease ends", func() bool { return s.owner(m).Owner == "" })
			pause(2 * rounding) // so that the lease has ended by this server's clock too
			if o := b.end(simba.EndTimeout); o.Status != simba.StatusTimeout || o.Owner != "" || o.Token != 0 {
				tc.t.Errorf("b, end of the wait after its lease had expired: %s; want timeout without an owner", show(o))
			}
			tc.equal("queue", s.queue(m), nil)
		}},
		{"6", "the reply to a waiter has the rest of its lease at that moment", 0, func(tc *testCase) {
			s, m := tc.held()
			b := s.block(m, "b", 10*sec, 5*sec)
			sent := time.Now()
			s.mustRelease(m, "a")
			b.awaitWake()
			woken := time.Now()
			pause(200 * ms)
			most := 10*sec - time.Since(woken) + rounding
			o := b.end(simba.EndWoken)
			tc.checkLeft("ttl", o.TTL, 10*sec, sent)
			if o.TTL > most {
				tc.t.Errorf("b, end of the wait: ttl %v; want at most %v, which are left", o.TTL, most)
			}
		}},
		{"retry", "the second connection of a waiter takes over its queue entry", 0, func(tc *testCase) {
			s, m := tc.held()
			old := s.block(m, "b", sec, 0)
			c := s.block(m, "c", long, 0)
			now := s.block(m, "b", 20*sec, 10*sec)
			old.awaitWake()
			if o := old.end(simba.EndWoken); o.Status != simba.StatusQueued || o.Position != 1 || o.Owner != "a" {
				tc.t.Errorf("the reply to the older connection: %s; want queued at position 1", show(o))
			}
			tc.equal("queue", s.queue(m), []string{"b", "c"})
			s.mustRelease(m, "a")
			now.granted()
			if t := s.owner(m); t.TransitionAt-t.AcquiredAt != 30_000 {
				tc.t.Errorf("OWNER after the grant: %+v; want the windows that the second connection asked for", t)
			}
			s.mustRelease(m, "b")
			c.granted()
		}},
		{"retry", "a poll by a blocked waiter changes nothing", 0, func(tc *testCase) {
			s, m := tc.held()
			b := s.block(m, "b", 20*sec, 10*sec)
			if o := s.acquire(m, "b", long, 0); o.Status != simba.StatusQueued || o.Position != 1 {
				tc.t.Errorf("ACQUIRE of the waiter without WAIT: %s; want queued at position 1", show(o))
			}
			s.mustRelease(m, "a")
			b.granted()
			if t := s.owner(m); t.TransitionAt-t.AcquiredAt != 30_000 {
				tc.t.Errorf("OWNER after the grant: %+v; want the windows that the blocked connection asked for", t)
			}
		}},
	}
}
