package conformance

import (
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

func sharedRules() []rule {
	return []rule{
		{"1", "servers agree on the owner", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			a := one.mustAcquire(m, "a", long, sec)
			if o := two.owner(m); o.Owner != "a" || o.Token != a.Token || o.TransitionAt-o.TTLAt != 1000 {
				tc.t.Errorf("OWNER at the other server: %+v; want owner a with its token and a transition of 1 s", o)
			}
			if !two.check(m, a.Token) || two.check(m, a.Token+1) {
				tc.t.Error("CHECK at the other server: want 1 for a's token only")
			}
			if o := two.acquireNoQueue(m, "b", sec, 0); o.Status != simba.StatusBusy || o.Owner != "a" || o.Token != a.Token {
				tc.t.Errorf("ACQUIRE of b at the other server: %s; want busy with a as the owner", show(o))
			}
			one.mustRelease(m, "a")
			if o := two.owner(m); o.Owner != "" {
				tc.t.Errorf("OWNER at the other server after the release: %+v; want no owner", o)
			}
			b := two.mustAcquire(m, "b", long, 0)
			if b.Token <= a.Token {
				tc.t.Errorf("the next tenure has token %d, the previous tenure %d; want a larger one",
					b.Token, a.Token)
			}
			if one.check(m, a.Token) || !one.check(m, b.Token) {
				tc.t.Error("CHECK at the first server: want 1 for b's token only")
			}
		}},
		{"retry-s", "an owner may ask through any server", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			a := one.mustAcquire(m, "a", long, 0)
			if o := two.guard(m, "a", 10*sec, sec, 0); o.Status != simba.StatusRenewed || o.Token != a.Token {
				tc.t.Errorf("GUARD at the other server: %s; want renewed", show(o))
			}
			if o := one.owner(m); o.TransitionAt-o.AcquiredAt != 11_000 {
				tc.t.Errorf("OWNER at the first server: %+v; want the windows of the renewal", o)
			}
			if o := two.guard(m, "a", renewable, 0, a.Token); o.Status != simba.StatusRenewed || o.Token != a.Token {
				tc.t.Errorf("GUARD with the tenure's token: %s; want renewed", show(o))
			}
			if o := two.guard(m, "a", renewable, 0, a.Token+1); o.Status != simba.StatusLost {
				tc.t.Errorf("GUARD with another token: %s; want lost", show(o))
			}
			if o := two.acquire(m, "a", renewable, 0); o.Status != simba.StatusRenewed || o.Token != a.Token {
				tc.t.Errorf("ACQUIRE of the owner at the other server: %s; want renewed", show(o))
			}
			if x, o := two.acquireWait(simba.AcquireRequest{Mutex: m, Contender: "a", TTL: renewable}); x != nil || o.Status != simba.StatusRenewed || o.Token != a.Token {
				tc.t.Errorf("ACQUIRE … WAIT of the owner at the other server: %s; want renewed", show(o))
			}
			if two.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Token: a.Token + 1}) {
				tc.t.Error("RELEASE with another token returned 1, want 0")
			}
			if !two.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Token: a.Token}) {
				tc.t.Error("RELEASE of the owner at the other server returned 0, want 1")
			}
			if o := one.guard(m, "a", long, 0, 0); o.Status != simba.StatusLost {
				tc.t.Errorf("GUARD after the release: %s; want lost", show(o))
			}
			two.mustAcquire(m, "b", long, 0)
		}},
		{"retry-s", "a lease renewed through another server ends, and not early", shared, func(tc *testCase) {
			one, two, _ := tc.pair()
			tc.withLease(2*sec, func(m string, lease time.Duration) bool {
				taken := time.Now()
				if _, inTime := one.acquireIfInTime(m, "a", lease, 0); !inTime {
					return false
				}
				sent := time.Now()
				if o := two.guard(m, "a", lease+sec, 0, 0); o.Status != simba.StatusRenewed {
					if sooner := time.Since(taken); sooner < lease-rounding {
						tc.t.Errorf("a's lease of %v ended after %v: GUARD returned %s", lease, sooner, show(o))
					}
					return false
				}
				tc.await("the lease ends", func() bool { return one.acquireNoQueue(m, "b", long, 0).Status == simba.StatusAcquired })
				if took := time.Since(sent); took < lease+sec-rounding {
					tc.t.Errorf("the renewed lease ended %v after the renewal, too early", took)
				}
				return true
			})
		}},
		{"retry-s", "of concurrent requests of one contender through two servers, one acquires and the others renew", shared, func(tc *testCase) {
			one, two, _ := tc.pair()
			for range 5 {
				acquireAtOnce(tc, tc.mutex(), one, two)
			}
		}},
		{"8s", "a waiter on one server is granted a mutex that the other releases", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			a := one.mustAcquire(m, "a", long, 0)
			b := two.block(m, "b", 10*sec, 5*sec)
			one.mustRelease(m, "a")
			b.awaitWake()
			o := b.end(simba.EndWoken)
			if o.Status != simba.StatusAcquired || o.Owner != "b" || o.Token <= a.Token || o.TTL > 10*sec || o.Transition > 15*sec {
				tc.t.Errorf("b, granted after the release at the other server: %s; want acquired with a larger token",
					show(o))
			}
			if t := one.owner(m); t.Owner != "b" || t.Token != o.Token || t.TransitionAt-t.AcquiredAt != 15_000 {
				tc.t.Errorf("OWNER at the other server: %+v; want b with its token and windows", t)
			}
			if t := one.guard(m, "b", renewable, 0, o.Token); t.Status != simba.StatusRenewed {
				tc.t.Errorf("GUARD of b at the other server: %s; want renewed", show(t))
			}
		}},
		{"8s", "a waiter on one server is granted a mutex that expires on the other", shared, func(tc *testCase) {
			one, two, _ := tc.pair()
			tc.withLease(2*sec, func(m string, lease time.Duration) bool {
				sent := time.Now()
				if _, inTime := one.acquireIfInTime(m, "a", lease/2, lease/2); !inTime {
					return false
				}
				b := two.blockIfInTime(m, "b")
				if b != nil {
					b.granted()
				}
				if took := time.Since(sent); took < lease-rounding {
					tc.t.Errorf("b acquired the mutex %v after a's request, before a's lease had ended", took)
				}
				return b != nil
			})
		}},
		{"8s", "a waiter on one server is granted a mutex that the other breaks", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			one.mustAcquire(m, "a", long, 0)
			b := one.block(m, "b", long, 0)
			if !two.breakTenure(m, "stuck") {
				tc.t.Error("BREAK of an owned mutex returned 0, want 1")
			}
			b.granted()
		}},
		{"6", "a waiter that disconnects after another server chose it is skipped", shared, func(tc *testCase) {
			one, two, _ := tc.pair()
			for _, when := range []string{"before", "after"} {
				m := tc.mutex()
				one.mustAcquire(m, "a", long, 0)
				dead := two.block(m, "dead", long, 0)
				b := one.block(m, "b", long, 0)
				if when == "before" {
					dead.end(simba.EndGone)
				}
				one.mustRelease(m, "a")
				if when == "after" {
					pause(50 * ms) // by now the handoff may have chosen the waiter
					dead.end(simba.EndGone)
				}
				b.granted()
			}
		}},
		{"session", "sessions of two servers with the same number are different", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			one.acquireAs(simba.AcquireRequest{Mutex: m, Contender: "a", TTL: long, Session: 7})
			if two.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Session: 7}) {
				tc.t.Error("another server's session ended the lease")
			}
			if !one.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Session: 7}) {
				tc.t.Error("the end of a's own session returned 0, want 1")
			}
		}},
		{"8s", "a lease that was shortened at another server ends", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			one.mustAcquire(m, "a", long, 0)
			b := one.block(m, "b", long, 0)
			two.guard(m, "a", 300*ms, 0, 0)
			b.granted()
			c := two.block(m, "c", long, 0)
			one.acquireAs(simba.AcquireRequest{Mutex: m, Contender: "b", TTL: 300 * ms})
			c.granted()
		}},
		{"scan", "SCAN finds the mutexes that clients of other servers hold", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			one.mustAcquire(m, "a", long, 0)
			if got := scan(two, simba.ScanRequest{Held: true, Match: func(n string) bool { return n == m }}); !slices.Equal(got, []string{m}) {
				tc.t.Errorf("SIMBA.SCAN of held mutexes at the other server: %v; want only a's mutex", got)
			}
		}},
		{"9s", "waiters of a crashed server delay nobody", shared, func(tc *testCase) {
			one, two, m := tc.pair()
			two.mustAcquire(m, "a", long, 0)
			one.block(m, "gone", long, 0)
			b := two.block(m, "b", long, 0)
			one.close()
			two.mustRelease(m, "a")
			b.granted()
		}},
		{"10s", "a lease outlives the server that granted it, and ends", shared, func(tc *testCase) {
			two := tc.server()
			tc.withLease(2*sec, func(m string, lease time.Duration) bool {
				one := tc.server()
				sent := time.Now()
				b := two.blockBehind(one, m, lease)
				if b == nil {
					return false
				}
				one.close()
				b.granted()
				if took := time.Since(sent); took < lease-rounding {
					tc.t.Errorf("b acquired the mutex %v after a's request, before a's lease had ended", took)
				}
				return true
			})
		}},
	}
}
