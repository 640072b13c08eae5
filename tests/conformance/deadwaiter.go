package conformance

import (
	"github.com/simba-resp/simba-resp"
)

func deadWaiterRules() []rule {
	return []rule{
		{"6", "a disconnected waiter is skipped", 0, func(tc *testCase) {
			s, m := tc.held()
			dead := s.block(m, "dead", long, 0)
			b := s.block(m, "b", long, 0)
			dead.end(simba.EndGone)
			s.mustRelease(m, "a")
			b.granted()
			if dead.isWoken() {
				tc.t.Error("the disconnected waiter was woken")
			}
		}},
		{"6", "a waiter that disconnects after it was chosen is skipped", 0, func(tc *testCase) {
			s, m := tc.held()
			dead := s.block(m, "dead", long, 0)
			b := s.block(m, "b", long, 0)
			s.mustRelease(m, "a")
			dead.awaitWake()
			if o := dead.end(simba.EndGone); o.Status == simba.StatusAcquired {
				tc.t.Errorf("the end of the disconnected waiter: %s; want no grant", show(o))
			}
			b.granted()
			if o := s.owner(m); o.Owner != "b" {
				tc.t.Errorf("OWNER: %+v; want b", o)
			}
		}},
		{"6", "waiters that disconnect during a handoff are all skipped", 0, func(tc *testCase) {
			s := tc.server()
			for range 10 {
				m := tc.mutex()
				s.mustAcquire(m, "a", long, 0)
				dead := []*waiter{s.block(m, "b", long, 0), s.block(m, "c", long, 0), s.block(m, "d", long, 0)}
				last := s.block(m, "e", long, 0)
				done := make(chan error)
				for _, x := range dead {
					x.ended = true
					go func() {
						o, err := x.ticket.End(simba.EndGone)
						if err == nil {
							err = s.b.Commit(o.Seq)
						}
						done <- err
					}()
				}
				s.mustRelease(m, "a")
				for range dead {
					if err := <-done; err != nil {
						tc.t.Error(err)
					}
				}
				last.granted()
			}
		}},
		{"6", "a grant that could not be delivered is handed off", 0, func(tc *testCase) {
			s, m := tc.held()
			dead := s.block(m, "dead", long, 0)
			b := s.block(m, "b", long, 0)
			s.mustRelease(m, "a")
			dead.granted()
			dead.abandon()
			b.granted()
			dead.abandon() // has no effect, since b owns the mutex
			if o := s.owner(m); o.Owner != "b" {
				tc.t.Errorf("OWNER: %+v; want b", o)
			}
			tc.equal("queue", s.queue(m), nil)
		}},
		{"6", "a grant that could not be delivered frees the mutex if nobody waits", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			for _, delivered := range []bool{true, false} {
				s.mustAcquire(m, "a", long, 0)
				dead := s.block(m, "dead", long, 0)
				s.mustRelease(m, "a")
				dead.awaitWake()
				if delivered {
					dead.end(simba.EndWoken)
					dead.abandon()
				} else {
					dead.end(simba.EndGone)
				}
				if o := s.owner(m); o.Owner != "" {
					tc.t.Errorf("OWNER: %+v; want no owner", o)
				}
			}
		}},
		{"6", "a waiter that returns keeps the grant of its old connection", 0, func(tc *testCase) {
			s := tc.server()
			for _, how := range []string{"end", "abandon"} {
				m := tc.mutex()
				s.mustAcquire(m, "a", long, 0)
				b := s.block(m, "b", long, 0)
				c := s.block(m, "c", long, 0)
				s.mustRelease(m, "a")
				b.awaitWake()
				if how == "abandon" {
					b.granted()
				}
				o := s.acquire(m, "b", long, 0)
				if o.Status != simba.StatusRenewed || o.Owner != "b" {
					tc.t.Fatalf("%s: ACQUIRE of b after its grant: %s; want renewed", how, show(o))
				}
				if how == "abandon" {
					b.abandon()
				} else {
					b.end(simba.EndGone)
				}
				if t := s.owner(m); t.Owner != "b" || t.Token != o.Token {
					tc.t.Errorf("%s: OWNER reports %+v; want b, which had received its reply", how, t)
				}
				if c.isWoken() {
					tc.t.Errorf("%s: c was woken while b was the owner", how)
				}
			}
		}},
		{"broken", "a waiter whose connection breaks keeps its queue entry", 0, func(tc *testCase) {
			s, m := tc.held()
			b := s.block(m, "b", long, 0)
			s.block(m, "c", long, 0)
			if o := b.end(simba.EndGone); o.Status != simba.StatusQueued {
				tc.t.Errorf("the reply to the disconnected waiter: %s; want queued", show(o))
			}
			tc.equal("queue", s.queue(m), []string{"b", "c"})
			if q := s.queueEntries(m, 2); len(q) == 2 && (q[0].Blocked || !q[1].Blocked) {
				tc.t.Errorf("QUEUE: %+v; want b not blocked and c blocked", q)
			}
			b = s.block(m, "b", long, 0)
			tc.equal("queue after its return", s.queue(m), []string{"b", "c"})
			s.mustRelease(m, "a")
			b.granted()
		}},
		{"broken", "a waiter whose connection breaks is notified through its subscription", 0, func(tc *testCase) {
			s, m := tc.held()
			s.subscribeContender(m, "b")
			b := s.block(m, "b", long, 0)
			b.end(simba.EndGone)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
		}},
		{"broken", "the entry of a waiter whose connection broke expires, however long the lease is", 0, func(tc *testCase) {
			s, m := tc.held()
			s.b.SetQueueGrace(100 * ms)
			b, c := s.block(m, "b", long, 0), s.block(m, "c", long, 0)
			b.end(simba.EndGone)
			c.end(simba.EndGone)
			tc.await("the entries expire", func() bool {
				if o := s.guard(m, "a", long, 0, 0); o.Status != simba.StatusRenewed {
					tc.t.Fatalf("GUARD of a: %s; want renewed", show(o))
				}
				left := 0 // counted by events, because SIMBA.QUEUE itself may remove entries
				for _, e := range s.history(simba.HistoryRequest{Mutex: m, Count: 10}) {
					if e.Kind == simba.EventLeft && e.Reason == "lapsed" {
						left++
					}
				}
				return left == 2
			})
			tc.equal("queue", s.queue(m), []string{})
		}},
	}
}
