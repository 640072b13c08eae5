package conformance

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

func leaseRules() []rule {
	return []rule{
		{"2", "ACQUIRE and OWNER report the requested windows, on one clock", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			sent := time.Now()
			a := s.mustAcquire(m, "a", 10*sec, 5*sec)
			tc.checkLeft("ttl", a.TTL, 10*sec, sent)
			tc.checkLeft("transition", a.Transition, 15*sec, sent)
			if a.Position != 0 {
				tc.t.Errorf("ACQUIRE: %s; want no queue position", show(a))
			}
			o := s.owner(m)
			if o.Owner != "a" || o.Token != a.Token || o.Waiters != 0 {
				tc.t.Errorf("OWNER: %+v; want a with its token and no waiters", o)
			}
			if o.TTLAt != o.AcquiredAt+10_000 || o.TransitionAt != o.TTLAt+5_000 {
				tc.t.Errorf("OWNER: %+v; want a TTL window of 10 s and a transition window of 5 s", o)
			}
			if o.Now < o.AcquiredAt || o.Now-o.AcquiredAt > (time.Since(sent)+rounding).Milliseconds() {
				tc.t.Errorf("OWNER reports that the grant was %d ms ago, but ACQUIRE was sent %v ago",
					o.Now-o.AcquiredAt, time.Since(sent))
			}
			if d := time.Until(time.UnixMilli(o.Now)).Abs(); d > time.Minute {
				tc.t.Errorf("OWNER: Now differs from this machine's clock by %v, want at most a minute", d)
			}
			if o.StartedAt != 0 && o.StartedAt != o.AcquiredAt {
				tc.t.Errorf("OWNER: %+v; want the tenure to begin with its first lease", o)
			}
			tc.checkLeft("ttl", o.TTL, 10*sec, sent)
			tc.checkLeft("transition", o.Transition, 15*sec, sent)
			if d := (o.Transition - 5*sec - o.TTL).Abs(); d > rounding {
				tc.t.Errorf("OWNER: ttl %v and transition %v; want a difference of 5 s", o.TTL, o.Transition)
			}
		}},
		{"since", "OWNER reports the start of the tenure, which renewals keep", 0, func(tc *testCase) {
			s, m := tc.held()
			first := s.owner(m)
			if first.StartedAt == 0 || first.StartedAt != first.AcquiredAt {
				tc.t.Errorf("OWNER of a new tenure: %+v; want StartedAt equal to AcquiredAt", first)
			}
			tc.await("a renewal begins later", func() bool {
				s.guard(m, "a", long, 0, first.Token)
				return s.owner(m).AcquiredAt > first.AcquiredAt
			})
			if o := s.owner(m); o.StartedAt != first.StartedAt {
				tc.t.Errorf("OWNER after a renewal: %+v; want the StartedAt of %+v", o, first)
			}
			s.mustRelease(m, "a")
			s.mustAcquire(m, "a", long, 0)
			if o := s.owner(m); o.StartedAt != o.AcquiredAt || o.StartedAt == first.StartedAt {
				tc.t.Errorf("OWNER of the next tenure: %+v; want a new StartedAt; the tenure before: %+v", o, first)
			}
		}},
		{"3", "a free mutex has no owner, and GUARD begins nothing", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			if o := s.guard(m, "a", long, 0, 0); o.Status != simba.StatusLost || o.Owner != "" || o.Token != 0 {
				tc.t.Errorf("GUARD of a free mutex: %s; want lost without an owner", show(o))
			}
			if o := s.owner(m); o != (simba.Tenure{}) {
				tc.t.Errorf("OWNER of a mutex that was never held: %+v; want nothing", o)
			}
			s.mustAcquire(m, "a", long, 0)
			s.mustRelease(m, "a")
			if o := s.owner(m); o != (simba.Tenure{}) {
				tc.t.Errorf("OWNER after the release: %+v; want nothing", o)
			}
		}},
		{"1", "a mutex is free at transition_at and not before", 0, func(tc *testCase) {
			s := tc.server()
			tc.withLease(300*ms, func(m string, lease time.Duration) bool {
				sent := time.Now()
				if _, inTime := s.acquireIfInTime(m, "a", lease/2, lease/2); !inTime {
					return false
				}
				var o simba.Outcome
				tc.await("the lease ends", func() bool {
					o = s.acquireNoQueue(m, "b", long, 0)
					// Just after the end of a lease, busy without an owner is correct too.
					if o.Status == simba.StatusBusy && o.Owner != "a" && (o.Owner != "" || time.Since(sent) < lease-rounding) {
						tc.t.Errorf("ACQUIRE of b, %v after a's lease began: %s; want busy with a as the owner",
							time.Since(sent), show(o))
					}
					return o.Status == simba.StatusAcquired
				})
				if took := time.Since(sent); took < lease-rounding {
					tc.t.Errorf("b acquired the mutex %v after a's request, before a's lease had ended", took)
				}
				if got := s.owner(m); got.Owner != "b" || got.Token != o.Token {
					tc.t.Errorf("OWNER: %+v; want the owner and token of b's reply: %s", got, show(o))
				}
				return true
			})
		}},
		{"1", "requests of others do not end a tenure", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			a := s.mustAcquire(m, "a", long, 0)
			if o := s.acquireNoQueue(m, "b", sec, 0); o.Status != simba.StatusBusy || o.Owner != "a" || o.Token != a.Token || o.Position != 0 {
				tc.t.Errorf("ACQUIRE of b with NOQUEUE: %s; want busy with a as the owner", show(o))
			}
			if o := s.guard(m, "b", sec, 0, 0); o.Status != simba.StatusLost || o.Owner != "a" || o.Token != a.Token {
				tc.t.Errorf("GUARD of b: %s; want lost with a as the owner", show(o))
			}
			if s.release(m, "b") {
				tc.t.Error("RELEASE of b returned 1, but a is the owner")
			}
			if o := s.owner(m); o.Owner != "a" || o.Token != a.Token {
				tc.t.Errorf("OWNER after the requests of b: %+v; want a with its token", o)
			}
		}},
		{"3", "the owner may renew in the transition window", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			a := s.mustAcquire(m, "a", ms, long)
			tc.await("the ttl window ends", func() bool { return s.owner(m).TTL == 0 })
			sent := time.Now()
			o := s.guard(m, "a", 10*sec, 5*sec, 0)
			if o.Status != simba.StatusRenewed || o.Token != a.Token || o.Owner != "a" {
				tc.t.Errorf("GUARD in the transition window: %s; want renewed with the same token", show(o))
			}
			tc.checkLeft("ttl", o.TTL, 10*sec, sent)
			tc.checkLeft("transition", o.Transition, 15*sec, sent)
		}},
		{"3", "GUARD after the end is lost and revives nothing", 0, func(tc *testCase) {
			s := tc.server()
			tc.withLease(150*ms, func(m string, lease time.Duration) bool {
				sent := time.Now()
				a, inTime := s.acquireIfInTime(m, "a", lease-50*ms, 50*ms)
				if !inTime {
					return false
				}
				s.awaitNoOwner(m)
				if took := time.Since(sent); took < lease-rounding {
					tc.t.Errorf("OWNER reports no owner %v after a's request, before a's lease had ended", took)
				}
				if s.check(m, a.Token) || s.release(m, "a") {
					tc.t.Error("CHECK or RELEASE after the lease had expired returned 1, want 0")
				}
				for _, token := range []uint64{0, a.Token} {
					if o := s.guard(m, "a", long, 0, token); o.Status != simba.StatusLost || o.Owner != "" || o.Token != 0 {
						tc.t.Errorf("GUARD after the lease had expired: %s; want lost without an owner", show(o))
					}
				}
				if o := s.owner(m); o.Owner != "" {
					tc.t.Errorf("OWNER after that GUARD: %+v; want no owner", o)
				}
				return true
			})
		}},
		{"3", "a renewal sets both windows, shorter or longer", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			a := s.mustAcquire(m, "a", 10*sec, 10*sec)
			for _, d := range []struct{ ttl, transition time.Duration }{{5 * sec, 0}, {30 * sec, 2 * sec}, {7 * sec, 9 * sec}} {
				for how, renew := range map[string]func() simba.Outcome{
					"guard":   func() simba.Outcome { return s.guard(m, "a", d.ttl, d.transition, 0) },
					"acquire": func() simba.Outcome { return s.acquire(m, "a", d.ttl, d.transition) },
				} {
					sent := time.Now()
					o := renew()
					if o.Status != simba.StatusRenewed || o.Token != a.Token {
						tc.t.Errorf("%s: %s; want renewed with the same token", how, show(o))
					}
					tc.checkLeft(how+": ttl", o.TTL, d.ttl, sent)
					tc.checkLeft(how+": transition", o.Transition, d.ttl+d.transition, sent)
					t := s.owner(m)
					if t.TTLAt-t.AcquiredAt != d.ttl.Milliseconds() || t.TransitionAt-t.TTLAt != d.transition.Milliseconds() {
						tc.t.Errorf("%s: OWNER reports %+v; want the windows of this renewal", how, t)
					}
				}
			}
		}},
		{"3", "a renewal postpones the handoff", 0, func(tc *testCase) {
			s := tc.server()
			tc.withLease(2*sec, func(m string, lease time.Duration) bool {
				taken := time.Now()
				b := s.blockBehind(s, m, lease)
				if b == nil {
					return false
				}
				sent := time.Now()
				if o := s.guard(m, "a", lease+sec, 0, 0); o.Status != simba.StatusRenewed {
					if sooner := time.Since(taken); sooner < lease-rounding {
						tc.t.Errorf("a's lease of %v ended after %v: GUARD returned %s", lease, sooner, show(o))
					}
					return false
				}
				b.granted()
				if took := time.Since(sent); took < lease+sec-rounding {
					tc.t.Errorf("b acquired the mutex %v after a's renewal, before a's lease had ended", took)
				}
				return true
			})
		}},
		{"1", "RELEASE frees the mutex at once, and only for its owner", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.mustAcquire(m, "a", long, long)
			if !s.release(m, "a") {
				tc.t.Error("RELEASE of the owner returned 0, want 1")
			}
			if s.release(m, "a") {
				tc.t.Error("a second RELEASE returned 1, want 0")
			}
			s.mustAcquire(m, "b", long, 0)
			if s.release(m, "a") {
				tc.t.Error("RELEASE of a returned 1, but b is the owner")
			}
		}},
		{"1", "BREAK frees the mutex whoever owns it", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			if s.breakTenure(m, "") {
				tc.t.Error("BREAK of a free mutex returned 1, want 0")
			}
			a := s.mustAcquire(m, "a", long, long)
			if !s.breakTenure(m, "stuck") {
				tc.t.Error("BREAK of an owned mutex returned 0, want 1")
			}
			if s.breakTenure(m, "") {
				tc.t.Error("a second BREAK returned 1, want 0")
			}
			if o := s.guard(m, "a", long, 0, a.Token); o.Status != simba.StatusLost {
				tc.t.Errorf("GUARD of the owner whose tenure was broken: %s; want lost", show(o))
			}
			s.mustAcquire(m, "b", long, 0)
		}},
	}
}
