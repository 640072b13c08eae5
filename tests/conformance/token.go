package conformance

import (
	"github.com/simba-resp/simba-resp"
)

func tokenRules() []rule {
	return []rule{
		{"4", "tokens grow however a tenure ends", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			var last uint64
			begin := func(how string, o simba.Outcome) {
				tc.t.Helper()
				if o.Token <= last {
					tc.t.Errorf("the new tenure has token %d, the previous one, which was %s, had %d; want a larger token",
						o.Token, how, last)
				}
				last = o.Token
			}
			for range 2 {
				begin("released", s.mustAcquire(m, "a", long, 0))
				s.breakTenure(m, "")
				begin("broken", s.mustAcquire(m, "a", long, 0))
				s.expire(m, "a", 30*ms)
				begin("expired", s.mustAcquire(m, "b", long, 0))
				c := s.block(m, "c", long, 0)
				s.mustRelease(m, "b")
				begin("handed on", c.granted())
				s.mustRelease(m, "c")
			}
		}},
		{"4t", "GUARD and RELEASE with a token act only on that tenure", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			old := s.mustAcquire(m, "a", long, 0).Token
			s.mustRelease(m, "a")
			now := s.mustAcquire(m, "a", long, 0).Token
			for _, token := range []uint64{old, now + 1, 1} {
				if o := s.guard(m, "a", long, 0, token); o.Status != simba.StatusLost || o.Owner != "a" || o.Token != now {
					tc.t.Errorf("GUARD with token %d in the tenure with token %d: %s; want lost", token, now, show(o))
				}
				if s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Token: token}) {
					tc.t.Errorf("RELEASE with token %d ended the tenure with token %d", token, now)
				}
			}
			if o := s.guard(m, "a", long, 0, now); o.Status != simba.StatusRenewed || o.Token != now {
				tc.t.Errorf("GUARD with the tenure's token: %s; want renewed", show(o))
			}
			if s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "b", Token: now}) {
				tc.t.Error("RELEASE of another contender with the owner's token returned 1, want 0")
			}
			if !s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Token: now}) {
				tc.t.Error("RELEASE of the owner with its token returned 0, want 1")
			}
		}},
		{"4t", "a late RELEASE with a token does not change the queue", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			old := s.mustAcquire(m, "a", long, 0).Token
			s.mustRelease(m, "a")
			s.mustAcquire(m, "b", long, 0)
			s.mustQueue(m, "a", sec) // a waits for its next tenure
			if s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Token: old}) {
				tc.t.Error("RELEASE with the token of an earlier tenure returned 1, want 0")
			}
			tc.equal("queue", s.queue(m), []string{"a"})
			if s.release(m, "a") {
				tc.t.Error("RELEASE of a waiter returned 1, want 0")
			}
			tc.equal("queue after a release without token", s.queue(m), nil)
		}},
		{"4t", "CHECK holds only for the current tenure", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			if s.check(m, 0) || s.check(m, 1) {
				tc.t.Error("CHECK of a mutex that was never held returned 1, want 0")
			}
			token := s.mustAcquire(m, "a", ms, long).Token
			tc.await("the ttl window ends", func() bool { return s.owner(m).TTL == 0 })
			if !s.check(m, token) {
				tc.t.Error("CHECK in the transition window returned 0, want 1: the lease still runs")
			}
			if s.check(m, token-1) || s.check(m, token+1) || s.check(m, 0) {
				tc.t.Error("CHECK of another token returned 1, want 0")
			}
			s.mustRelease(m, "a")
			if s.check(m, token) || s.check(m, 0) {
				tc.t.Error("CHECK after the release returned 1, want 0")
			}
			s.mustAcquire(m, "b", long, 0)
			if s.check(m, token) {
				tc.t.Error("CHECK of the previous tenure's token returned 1, want 0")
			}
		}},
		{"session", "the end of a session releases only the leases bound to it", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			ask := func(session uint64) {
				tc.t.Helper()
				s.acquireAs(simba.AcquireRequest{Mutex: m, Contender: "a", TTL: long, Session: session})
			}
			end := func(session uint64) bool {
				tc.t.Helper()
				return s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Session: session})
			}
			ask(7)
			ask(8) // the client reconnects before the server notices the closed connection
			if end(7) {
				tc.t.Error("the end of the closed connection's session ended the lease of the new one")
			}
			s.guard(m, "a", long, 0, 0)
			if !end(8) {
				tc.t.Error("the end of the owner's session returned 0, want 1")
			}
			ask(8)
			ask(0)
			if end(8) {
				tc.t.Error("the end of a session ended a lease that was acquired again without it")
			}
			if !s.release(m, "a") {
				tc.t.Error("RELEASE of a returned 0, want 1: its lease is bound to no session")
			}
		}},
		{"session", "OWNER reports the session", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			for _, session := range []uint64{7, 8, 0, 9} { // 0 = no session
				s.acquireAs(simba.AcquireRequest{Mutex: m, Contender: "a", TTL: long, Session: session})
				s.guard(m, "a", long, 0, 0)
				if o := s.owner(m); o.Session != session {
					tc.t.Errorf("OWNER reports session %d, want %d", o.Session, session)
				}
			}
			w, _ := s.acquireWait(simba.AcquireRequest{Mutex: m, Contender: "b", TTL: long, Session: 10})
			s.mustRelease(m, "a")
			w.granted()
			if o := s.owner(m); o.Owner != "b" || o.Session != 10 {
				tc.t.Errorf("OWNER after the grant to a waiter with session 10: %+v; want b and session 10", o)
			}
		}},
		{"session", "OWNER reports no session of another server", shared, func(tc *testCase) {
			s, other, m := tc.server(), tc.server(), tc.mutex()
			s.acquireAs(simba.AcquireRequest{Mutex: m, Contender: "a", TTL: long, Session: 7})
			if mine, theirs := s.owner(m), other.owner(m); mine.Session != 7 || theirs.Session != 0 || theirs.Owner != "a" {
				tc.t.Errorf("OWNER at the owner's server: %+v, at the other: %+v; want session 7 and none",
					mine, theirs)
			}
		}},
		{"session", "the end of a session hands off, and does not change the queue", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.acquireAs(simba.AcquireRequest{Mutex: m, Contender: "a", TTL: long, Session: 7})
			x, _ := s.acquireWait(simba.AcquireRequest{Mutex: m, Contender: "b", TTL: long, Session: 8})
			s.mustQueue(m, "c", sec)
			if s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "c", Session: 9}) {
				tc.t.Error("the end of the session of the waiter c returned 1, want 0")
			}
			tc.equal("queue", s.queue(m), []string{"b", "c"})
			if !s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Session: 7}) {
				tc.t.Error("the end of a's session returned 0, want 1")
			}
			x.granted()
			if !s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "b", Session: 8}) {
				tc.t.Error("the end of b's session returned 0, want 1: the lease of a waiter is bound to its session")
			}
		}},
	}
}
