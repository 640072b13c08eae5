package backendtest

import (
	"github.com/simba-resp/simba-resp"
)

func tokenRules() []rule {
	return []rule{
		{"4", "tokens grow however a tenure ends", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			var last uint64
			begin := func(how string, o simba.Outcome) {
				w.t.Helper()
				if o.Token <= last {
					w.t.Errorf("token %d after %d, when the tenure before was %s", o.Token, last, how)
				}
				last = o.Token
			}
			for range 2 {
				begin("released", s.take(m, "a", long, 0))
				s.breakIt(m, "")
				begin("broken", s.take(m, "a", long, 0))
				s.expire(m, "a", 30*ms)
				begin("expired", s.take(m, "b", long, 0))
				c := s.block(m, "c", long, 0)
				s.giveUp(m, "b")
				begin("handed on", c.granted())
				s.giveUp(m, "c")
			}
		}},
		{"4", "a token is the same for the whole tenure", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			a := s.take(m, "a", long, 0)
			for range 5 {
				if o := s.guard(m, "a", long, sec, 0); o.Token != a.Token {
					w.t.Errorf("guard: %s", show(o))
				}
				if o := s.acquire(m, "a", long, 0); o.Token != a.Token {
					w.t.Errorf("acquire: %s", show(o))
				}
			}
			if o := s.owner(m); o.Token != a.Token {
				w.t.Errorf("owner: %+v", o)
			}
		}},
		{"4t", "guard and release with a token act only on that tenure", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			old := s.take(m, "a", long, 0).Token
			s.giveUp(m, "a")
			now := s.take(m, "a", long, 0).Token
			for _, token := range []uint64{old, now + 1, 1} {
				if o := s.guard(m, "a", long, 0, token); o.Status != simba.StatusLost || o.Owner != "a" || o.Token != now {
					w.t.Errorf("guard with token %d of %d: %s", token, now, show(o))
				}
				if s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Token: token}) {
					w.t.Errorf("release with token %d released %d", token, now)
				}
			}
			if o := s.guard(m, "a", long, 0, now); o.Status != simba.StatusRenewed || o.Token != now {
				w.t.Errorf("guard with the token: %s", show(o))
			}
			if s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "b", Token: now}) {
				w.t.Error("another released with the owner's token")
			}
			if !s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Token: now}) {
				w.t.Error("release with the token did not release")
			}
		}},
		{"4t", "a late release with a token leaves the queue alone", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			old := s.take(m, "a", long, 0).Token
			s.giveUp(m, "a")
			s.take(m, "b", long, 0)
			s.queueUp(m, "a", sec) // for its next tenure
			if s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Token: old}) {
				w.t.Error("it released")
			}
			w.equal("queue", s.queue(m), []string{"a"})
			if s.release(m, "a") {
				w.t.Error("a waiter's release is 1")
			}
			w.equal("queue after a release without token", s.queue(m), nil)
		}},
		{"4t", "check holds only for the tenure that runs", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			if s.check(m, 0) || s.check(m, 1) {
				w.t.Error("check of a mutex that was never held")
			}
			token := s.take(m, "a", ms, long).Token
			w.await("the ttl window ends", func() bool { return s.owner(m).TTL == 0 })
			if !s.check(m, token) {
				w.t.Error("in the transition window the lease still runs")
			}
			if s.check(m, token-1) || s.check(m, token+1) || s.check(m, 0) {
				w.t.Error("check of another token")
			}
			s.giveUp(m, "a")
			if s.check(m, token) || s.check(m, 0) {
				w.t.Error("check after the end")
			}
			s.take(m, "b", long, 0)
			if s.check(m, token) {
				w.t.Error("check of the tenure before")
			}
		}},
		{"session", "the end of a session releases only what is bound to it", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			ask := func(session uint64) {
				w.t.Helper()
				s.ask(simba.AcquireRequest{Mutex: m, Contender: "a", TTL: long, Session: session})
			}
			end := func(session uint64) bool {
				w.t.Helper()
				return s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Session: session})
			}
			ask(7)
			ask(8) // by another connection, before the first is seen to be gone
			if end(7) {
				w.t.Error("the old session took the lease away")
			}
			s.guard(m, "a", long, 0, 0)
			if !end(8) {
				w.t.Error("the session's end did not release")
			}
			ask(8)
			ask(0)
			if end(8) {
				w.t.Error("a lease that was asked for again without a session was taken away")
			}
			if !s.release(m, "a") {
				w.t.Error("a's lease is gone")
			}
		}},
		{"session", "the end of a session hands on, and leaves the queue alone", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.ask(simba.AcquireRequest{Mutex: m, Contender: "a", TTL: long, Session: 7})
			x, _ := s.enter(simba.AcquireRequest{Mutex: m, Contender: "b", TTL: long, Session: 8})
			s.queueUp(m, "c", sec)
			if s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "c", Session: 9}) {
				w.t.Error("c owned nothing")
			}
			w.equal("queue", s.queue(m), []string{"b", "c"})
			if !s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Session: 7}) {
				w.t.Error("the session's end did not release")
			}
			x.granted()
			if !s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "b", Session: 8}) {
				w.t.Error("what a waiter was granted is not bound to its session")
			}
		}},
	}
}
