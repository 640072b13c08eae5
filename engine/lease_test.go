package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	sec = time.Second
	ms  = time.Millisecond
)

func TestLeaseHasEndedAtTransitionAtExactlyAndNotBefore(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 10*sec, 2*sec)
		time.Sleep(12*sec - 1)
		if o := w.ask(simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: sec, NoQueue: true}); o.Status != simba.StatusBusy || o.Owner != "a" {
			w.t.Errorf("ACQUIRE a nanosecond before the end of the lease: %+v; want busy with the owner a", o)
		}
		time.Sleep(time.Nanosecond)
		if o := w.acquire("m", "b", sec, 0); o.Status != simba.StatusAcquired {
			w.t.Errorf("ACQUIRE at the end of the lease: %+v; want acquired", o)
		}
	})
}

func TestOwnerGuardsInTheTransitionWindow(t *testing.T) {
	inBubble(t, func(w *world) {
		first := w.acquire("m", "a", 10*sec, 2*sec)
		time.Sleep(12*sec - 1)
		if o := w.guard("m", "a", 3*sec, sec, 0); o.Status != simba.StatusRenewed || o.Token != first.Token || o.TTL != 3*sec || o.Transition != 4*sec {
			w.t.Errorf("GUARD in the last nanosecond of the lease: %+v; want renewed with the new windows", o)
		}
		time.Sleep(4 * sec)
		if o := w.guard("m", "a", sec, 0, 0); o.Status != simba.StatusLost || o.Owner != "" || o.Token != 0 {
			w.t.Errorf("GUARD at the end of the lease: %+v; want lost", o)
		}
	})
}

func TestGuardNeverBeginsATenure(t *testing.T) {
	inBubble(t, func(w *world) {
		if o := w.guard("m", "a", sec, 0, 0); o.Status != simba.StatusLost {
			w.t.Errorf("GUARD of a free mutex: %+v; want lost", o)
		}
		w.acquire("m", "a", sec, 0)
		if o := w.guard("m", "b", sec, 0, 0); o.Status != simba.StatusLost || o.Owner != "a" {
			w.t.Errorf("GUARD by another contender: %+v; want lost with a as the owner", o)
		}
		if got := w.owner("m"); got.Owner != "a" {
			w.t.Errorf("owner %+v, want a", got)
		}
	})
}

func TestRenewalSetsBothWindowsAnewAndKeepsTheToken(t *testing.T) {
	inBubble(t, func(w *world) {
		first := w.acquire("m", "a", 10*sec, 5*sec)
		time.Sleep(sec)
		o := w.acquire("m", "a", sec, 0) // shorter than the rest of the lease
		if o.Status != simba.StatusRenewed || o.Token != first.Token || o.TTL != sec || o.Transition != sec {
			w.t.Errorf("ACQUIRE of the owner: %+v; want renewed with the new windows", o)
		}
		got := w.owner("m")
		if got.TTLAt != got.AcquiredAt+1000 || got.TransitionAt != got.TTLAt || got.Now != got.AcquiredAt {
			w.t.Errorf("owner after the renewal: %+v; want a TTL window of 1 s and no transition window", got)
		}
		time.Sleep(sec)
		if got := w.owner("m"); got.Owner != "" {
			w.t.Errorf("owner after the end of the lease: %+v; want none", got)
		}
	})
}

func TestTokensGrowWithEveryTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Token: 41})
		var last uint64 = 41
		for _, m := range []string{"x", "y", "x", "z", "x"} {
			o := w.acquire(m, "a", sec, 0)
			if o.Status != simba.StatusAcquired || o.Token <= last {
				t.Errorf("%s: ACQUIRE returned %+v after token %d; want acquired with a larger token", m, o, last)
			}
			last = o.Token
			w.release(m, "a")
		}
	})
}

func TestTokenConfinesGuardAndReleaseToItsTenure(t *testing.T) {
	inBubble(t, func(w *world) {
		old := w.acquire("m", "a", sec, 0).Token
		w.release("m", "a")
		cur := w.acquire("m", "a", sec, 0).Token
		if o := w.guard("m", "a", sec, 0, old); o.Status != simba.StatusLost {
			w.t.Errorf("GUARD with the token of an earlier tenure: %+v; want lost", o)
		}
		if w.askRelease(simba.ReleaseRequest{Mutex: "m", Contender: "a", Token: old}) {
			w.t.Error("Release with the token of an earlier tenure returned true, want false")
		}
		if o := w.guard("m", "a", sec, 0, cur); o.Status != simba.StatusRenewed {
			w.t.Errorf("GUARD with the present token: %+v; want renewed", o)
		}
		if !w.askRelease(simba.ReleaseRequest{Mutex: "m", Contender: "a", Token: cur}) {
			w.t.Error("Release with the present token returned false, want true")
		}
	})
}

func TestLateReleaseWithTokenLeavesTheQueueAlone(t *testing.T) {
	inBubble(t, func(w *world) {
		old := w.acquire("m", "a", sec, 0).Token
		time.Sleep(sec)
		w.acquire("m", "b", 10*sec, 0)
		w.acquire("m", "a", sec, 0) // queued for its next tenure
		w.askRelease(simba.ReleaseRequest{Mutex: "m", Contender: "a", Token: old})
		if q := w.queue("m"); !slices.Equal(q, []string{"a"}) {
			w.t.Errorf("queue after a release with a token: %v; want a", q)
		}
		w.release("m", "a")
		if q := w.queue("m"); len(q) != 0 {
			w.t.Errorf("queue after a release without token: %v; want nobody", q)
		}
	})
}

func TestCheckIsTrueOnlyForThePresentTenure(t *testing.T) {
	inBubble(t, func(w *world) {
		token := w.acquire("m", "a", sec, sec).Token
		check := func(token uint64) bool {
			ok, seq, err := w.e.Check(w.t.Context(), "m", token)
			w.mustCommit(seq, err)
			return ok
		}
		if !check(token) || check(token-1) || check(token+1) || check(0) {
			w.t.Error("Check is false for the present token, or true for another one")
		}
		time.Sleep(2*sec - 1)
		if !check(token) {
			w.t.Error("Check is false in the transition window")
		}
		time.Sleep(time.Nanosecond)
		if check(token) || check(0) {
			w.t.Error("Check is true after the end of the lease")
		}
	})
}

func TestASessionReleasesOnlyItsLeases(t *testing.T) {
	inBubble(t, func(w *world) {
		w.ask(simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: sec, Session: 7})
		// The client reconnects before the server notices the end of the first connection.
		w.ask(simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: sec, Session: 8})
		if w.askRelease(simba.ReleaseRequest{Mutex: "m", Contender: "a", Session: 7}) {
			w.t.Error("Release of the old session returned true, want false")
		}
		if !w.askRelease(simba.ReleaseRequest{Mutex: "m", Contender: "a", Session: 8}) {
			w.t.Error("Release of the present session returned false, want true")
		}
		w.acquire("m", "a", sec, 0)
		if w.askRelease(simba.ReleaseRequest{Mutex: "m", Contender: "a", Session: 8}) {
			w.t.Error("Release of a session ended a later lease that has no session")
		}
	})
}

func TestAnIdleMutexCostsNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("released", "a", sec, 0)
		w.release("released", "a")
		w.acquire("expired", "a", sec, sec)
		w.acquire("expired", "b", sec, sec)
		c := w.block("expired", "c", sec, sec)
		w.owner("never held")
		w.guard("never held", "a", sec, 0, 0)
		<-c.woken
		c.granted()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.audit()
		if s := w.e.Stats(); s.Mutexes != 0 {
			w.t.Errorf("%d mutexes in memory, want 0", s.Mutexes)
		}
		for i := range w.e.shards {
			if n := len(w.e.shards[i].due); n != 0 {
				w.t.Errorf("shard %d has %d deadlines, want 0", i, n)
			}
		}
	})
}

func TestHoldsAreTheLengthsOfTenuresThatEnded(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		time.Sleep(3 * sec)
		w.acquire("m", "a", time.Hour, 0) // a renewal begins no tenure
		time.Sleep(2 * sec)
		w.release("m", "a")
		w.acquire("n", "a", sec, sec) // expires after 2 s
		w.acquire("still held", "a", time.Hour, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		if h := w.e.Stats().TenureLengths; h.Count() != 2 || h.Micros != 7_000_000 {
			w.t.Errorf("TenureLengths has %d tenures with a sum of %d µs, want 2 tenures with a sum of 7 s", h.Count(), h.Micros)
		}
	})
}

func TestATenureThatExpiredWhileTheServerWasDownEndsWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minute = time.Minute
		now := simba.Instant(0).Add(time.Hour)
		e, err := New(Config{Clock: NewClock(now), Notices: &recorder{}}, Memory(), Recovery{Token: 1, Leases: leases(simba.Lease{
			Mutex: "m", Owner: "a", Token: 1, TTL: minute, Transition: minute, Acquired: now.Add(-30 * minute),
			StartedAt: time.Now().Add(-40 * minute).UnixMilli(),
		})})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Stop()
		synctest.Wait()
		if h := e.Stats().TenureLengths; h.Count() != 1 || h.Micros != uint64((12*minute).Microseconds()) {
			t.Errorf("TenureLengths has %d tenures with a sum of %d µs, want 1 tenure of 12 min", h.Count(), h.Micros)
		}
	})
}

func TestHistoryHasEveryChangeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Seq: 100})
		w.acquire("m", "a", sec, 0)
		w.acquire("m", "b", sec, 0)
		w.acquire("other", "x", sec, 0)
		w.release("m", "b")
		w.acquire("m", "a", sec, 0) // a renewal is no event
		time.Sleep(sec)
		synctest.Wait()
		w.acquire("m", "c", sec, 0)
		freed, seq, err := w.e.Break(t.Context(), "m", "stuck")
		w.mustCommit(seq, err)
		if !freed {
			t.Error("Break of an owned mutex returned false, want true")
		}
		want := []string{"acquired a", "queued b", "left b", "expired a", "acquired c", "broken c"}
		if got := w.history("m"); !slices.Equal(got, want) {
			t.Errorf("history %q, want %q", got, want)
		}
		events, _, _ := w.e.History(t.Context(), simba.HistoryRequest{Mutex: "m", Count: 2})
		if len(events) != 2 || events[1].Kind != simba.EventBroken || events[1].Reason != "stuck" {
			t.Errorf("newest two events: %+v; want a break with its reason at the end", events)
		}
		last := simba.Seq(100)
		all, _, _ := w.e.History(t.Context(), simba.HistoryRequest{Mutex: "m", Count: 100})
		for _, e := range all {
			if e.Seq <= last {
				t.Errorf("event has Seq %d, want more than %d of the event before", e.Seq, last)
			}
			last = e.Seq
		}
		since, _, _ := w.e.History(t.Context(), simba.HistoryRequest{Mutex: "m", Count: 100, Since: all[3].Seq})
		if !slices.Equal(since, all[4:]) {
			t.Errorf("events since %d: %+v; want %+v", all[3].Seq, since, all[4:])
		}
	})
}

func TestStoppedEngineAnswersNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", sec, 0)
		w.e.Stop()
		w.e.Stop()
		if _, _, err := w.e.Owner(w.t.Context(), "m"); err != simba.ErrStopped {
			w.t.Errorf("Owner returned %v, want ErrStopped", err)
		}
		if err := w.e.Commit(1); err != simba.ErrStopped {
			w.t.Errorf("Commit returned %v, want ErrStopped", err)
		}
		time.Sleep(time.Hour) // no timer fires
	})
}
