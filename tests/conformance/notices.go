package conformance

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

func noticeRules() []rule {
	return []rule{
		{"notices", "every new tenure is announced once, and renewals are not", 0, func(tc *testCase) {
			s, m := tc.watched()
			s.acquire(m, "a", long, 0)
			s.guard(m, "a", long, 0, 0)
			b := s.block(m, "b", long, 0)
			s.mustRelease(m, "a")
			b.granted()
			s.breakTenure(m, "")
			s.mustAcquire(m, "b", long, 0)
			s.expire(m, "b", 50*ms)
			s.mustAcquire(m, "c", long, 0)
			s.awaitNotices(simba.MutexChannel(m), "acquired@@a", "acquired@@b", "released@@b", "acquired@@b", "acquired@@c")
		}},
		{"notices", "RELEASE, BREAK and the end of a session announce a free mutex", 0, func(tc *testCase) {
			s := tc.server()
			for _, end := range []func(m string){
				func(m string) { s.mustRelease(m, "the@owner") },
				func(m string) { s.breakTenure(m, "stuck") },
				func(m string) { s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "the@owner", Session: 7}) },
			} {
				m := tc.mutex()
				s.subscribe(simba.MutexChannel(m))
				s.acquireAs(simba.AcquireRequest{Mutex: m, Contender: "the@owner", TTL: long, Session: 7})
				end(m)
				s.awaitNotices(simba.MutexChannel(m), "acquired@@the@owner", "released@@the@owner")
				s.mustAcquire(m, "b", long, 0)
				s.awaitNotices(simba.MutexChannel(m), "acquired@@the@owner", "released@@the@owner", "acquired@@b")
			}
		}},
		{"notices", "RELEASE by a contender that is not the owner announces nothing", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.subscribe(simba.MutexChannel(m))
			a := s.mustAcquire(m, "a", long, 0)
			s.mustQueue(m, "b", sec)
			s.release(m, "b")
			s.release(m, "stranger")
			s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Token: a.Token + 1})
			s.mustRelease(m, "a")
			s.release(m, "a")
			s.breakTenure(m, "")
			s.mustAcquire(m, "c", long, 0)
			s.awaitNotices(simba.MutexChannel(m), "acquired@@a", "released@@a", "acquired@@c")
		}},
		{"notices", "the end of a lease announces nothing on the mutex's channel", 0, func(tc *testCase) {
			s, m := tc.watched()
			s.expire(m, "a", 200*ms)
			pause(100 * ms)
			s.mustAcquire(m, "b", long, 0)
			s.awaitNotices(simba.MutexChannel(m), "acquired@@a", "acquired@@b")
		}},
		{"notices", "a mutex with only unreachable waiters is announced as free", 0, func(tc *testCase) {
			s, m := tc.watched()
			s.mustQueue(m, "mute", sec)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.MutexChannel(m), "acquired@@a", "released@@a")
		}},
		{"notices", "a free mutex is not announced while it is reserved", 0, func(tc *testCase) {
			s, m := tc.watched()
			s.b.SetHandoffWindow(long)
			s.poll(m, "b", sec)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			pause(200 * ms)
			s.mustAcquire(m, "b", long, 0)
			s.awaitNotices(simba.MutexChannel(m), "acquired@@a", "acquired@@b")
		}},
		{"notices", "a missed reservation without a next waiter announces a free mutex", 0, func(tc *testCase) {
			s, m := tc.watched()
			s.b.SetHandoffWindow(300 * ms)
			s.poll(m, "b", sec)
			sent := time.Now()
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			s.awaitNotices(simba.MutexChannel(m), "acquired@@a", "released@@a")
			if took := time.Since(sent); took < 300*ms-rounding {
				tc.t.Errorf("the notice that the mutex is free was published after %v, during b's reservation", took)
			}
			s.mustAcquire(m, "c", long, 0)
			s.awaitNotices(simba.MutexChannel(m), "acquired@@a", "released@@a", "acquired@@c")
		}},
		{"notices", "a waiter that leaves during its reservation, without a next waiter, announces a free mutex", 0, func(tc *testCase) {
			s, m := tc.watched()
			s.b.SetHandoffWindow(long)
			s.poll(m, "b", sec)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			s.release(m, "b")
			s.awaitNotices(simba.MutexChannel(m), "acquired@@a", "released@@a")
		}},
		{"notices", "with a handoff window of zero, a free mutex is announced to all", 0, func(tc *testCase) {
			s, m := tc.watched()
			s.b.SetHandoffWindow(0)
			s.poll(m, "b", long)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			s.awaitNotices(simba.MutexChannel(m), "acquired@@a", "released@@a")
		}},
		{"notices", "the notice to a waiter names the old owner, however its tenure ended", 0, func(tc *testCase) {
			s := tc.server()
			for _, end := range []func(m string){
				func(m string) { s.mustRelease(m, "the@owner") },
				func(m string) { s.breakTenure(m, "") },
				func(m string) { s.shorten(m, "the@owner", 50*ms, 0) }, // the lease expires soon
			} {
				m := tc.mutex()
				s.mustAcquire(m, "the@owner", long, 0)
				s.poll(m, "b", sec)
				end(m)
				s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@the@owner")
				s.mustAcquire(m, "b", long, 0)
			}
		}},
		{"notices", "a waiter gets no notice for another waiter", 0, func(tc *testCase) {
			s, m := tc.held()
			s.b.SetHandoffWindow(long)
			s.subscribeContender(m, "b")
			s.subscribeContender(m, "c")
			s.mustQueue(m, "b", sec)
			s.mustQueue(m, "c", sec)
			s.mustRelease(m, "a")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
			s.mustAcquire(m, "b", long, 0)
			s.mustRelease(m, "b")
			s.awaitNotices(simba.ContenderChannel(m, "c"), "released@@b")
			s.awaitNotices(simba.ContenderChannel(m, "b"), "released@@a")
		}},
		{"notices", "every change is published as in the history", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			s.subscribe(simba.EventChannel(m))
			s.mustAcquire(m, "a", long, 0)
			b := s.block(m, "b", long, 0)
			s.mustQueue(m, "c", sec)
			s.release(m, "c")
			s.mustRelease(m, "a")
			b.granted()
			s.breakTenure(m, `stuck "twice"`)
			want := s.history(simba.HistoryRequest{Mutex: m, Count: 100})
			var lines []string
			for _, e := range want {
				lines = append(lines, string(e.AppendJSON(nil)))
			}
			s.awaitNotices(simba.EventChannel(m), lines...)
			if len(lines) != 7 {
				tc.t.Errorf("HISTORY has %d events, want 7: %q", len(lines), lines)
			}
			var last struct {
				Event, Mutex, Owner, Reason string
				Token                       uint64
			}
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
				tc.t.Error(err)
			}
			if last.Event != "broken" || last.Mutex != m || last.Owner != "b" || last.Reason != `stuck "twice"` || last.Token == 0 {
				tc.t.Errorf("the last event: %+v; want broken, with b, its token and the reason", last)
			}
		}},
		{"history", "the history has every change in order", 0, func(tc *testCase) {
			s, m, other := tc.server(), tc.mutex(), tc.mutex()
			s.mustAcquire(m, "a", long, 0)
			s.mustQueue(m, "b", sec)
			s.mustAcquire(other, "x", long, 0)
			s.release(m, "b")
			s.expire(m, "a", 50*ms) // a renewal is no event
			s.mustAcquire(m, "c", long, 0)
			s.breakTenure(m, "stuck")
			tc.equal("history", s.eventsOf(m), []string{"acquired a", "queued b", "left b", "expired a", "acquired c", "broken c"})
			all := s.history(simba.HistoryRequest{Mutex: m, Count: 100})
			if len(all) != 6 {
				return // tc.equal has reported it
			}
			for i, e := range all {
				if e.Mutex != m || e.At == 0 || i > 0 && e.Seq <= all[i-1].Seq {
					tc.t.Errorf("event %d of the history: %+v; want the mutex, a time and a growing Seq", i, e)
				}
			}
			if all[5].Reason != "stuck" || all[5].Token != all[4].Token || all[3].Token != all[0].Token || all[1].Token != 0 {
				tc.t.Errorf("HISTORY: %+v; want the reason of the break, and the token of each tenure in its events",
					all)
			}
			if got := s.history(simba.HistoryRequest{Mutex: m, Count: 2}); !slices.Equal(got, all[4:]) {
				tc.t.Errorf("HISTORY of the newest two: %+v; want the last two events", got)
			}
			if got := s.history(simba.HistoryRequest{Mutex: m, Count: 100, Since: all[3].Seq}); !slices.Equal(got, all[4:]) {
				tc.t.Errorf("HISTORY since %d: %+v; want the last two events", all[3].Seq, got)
			}
			if got := s.history(simba.HistoryRequest{Mutex: tc.mutex()}); len(got) != 0 {
				tc.t.Errorf("HISTORY of a mutex that nobody used: %+v; want nothing", got)
			}
		}},
		{"history", "a given reason is in the history", 0, func(tc *testCase) {
			s, m := tc.held()
			s.releaseAs(simba.ReleaseRequest{Mutex: m, Contender: "a", Reason: "session ended"})
			got := s.history(simba.HistoryRequest{Mutex: m, Count: 1})
			if len(got) != 1 || got[0].Kind != simba.EventReleased || got[0].Reason != "session ended" {
				tc.t.Errorf("HISTORY: %+v; want released with the reason \"session ended\"", got)
			}
		}},
	}
}
