package engine

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Each test of this file checks a rule that no other test checks.

func TestNoNoticeOrWakeUpIsSentBeforeItIsDurable(t *testing.T) {
	inBubbleOnDisk(t, func(w *world, g *gate) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", time.Hour, 0)
		w.acquire("n", "a", time.Hour, 0)
		w.poll("n", "c", time.Hour)
		heard := len(w.recorder.heard)
		g.set(false)
		for _, m := range []string{"m", "n"} {
			if _, _, err := w.e.Release(w.t.Context(), simba.ReleaseRequest{Mutex: m, Contender: "a"}); err != nil {
				w.t.Fatal(err)
			}
		}
		w.mustCommit(0, nil) // as for another client, whose replies wait for no change
		if b.isWoken() {
			w.t.Error("a waiter was woken before its grant was durable")
		}
		if got := w.recorder.heard[heard:]; len(got) > 0 {
			w.t.Errorf("notices before the change was durable: %q, want none", got)
		}
		g.set(true)
		w.mustCommit(0, nil)
		b.granted()
		if got := w.offers("n", "c"); len(got) != 1 {
			w.t.Errorf("c got the notices %q, want one", got)
		}
	})
}

func TestAPollDoesNotChangeWhatABlockedConnectionAskedFor(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", 600*sec, sec)
		w.ask(simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: 5 * sec, Session: 9})
		w.release("m", "a")
		if o := b.granted(); o.TTL != 600*sec || o.Transition != 601*sec {
			w.t.Errorf("b was granted %+v; want windows of 600 s and 1 s", o)
		}
		if w.askRelease(simba.ReleaseRequest{Mutex: "m", Contender: "b", Session: 9}) {
			w.t.Error("the lease is bound to the session of the polling request")
		}
	})
}

func TestTheEndOfATenureOfAnEarlierRunIsForcedToDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.set(true)
		w := newWorldOn(t, g, Recovery{Token: 7, Leases: leases(
			simba.Lease{Mutex: "m", Owner: "a", Token: 7, Acquired: 1000, TTL: time.Hour},
		)})
		w.release("m", "a")
		if ch := g.changes[len(g.changes)-1]; !ch.Forced || ch.Kind != simba.ChangeDelete {
			t.Errorf("change of the release: %+v; want a forced delete", ch)
		}
	})
}

func TestAnOwnerThatQueuedDuringTheRecoveryDelayIsRenewedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Token: 7, Delay: 30 * sec, Leases: leases(
			simba.Lease{Mutex: "m", Owner: "a", Token: 7, Acquired: 1000, TTL: time.Hour},
			simba.Lease{Mutex: "n", Owner: "a", Token: 6, Acquired: 1000, TTL: time.Hour},
		)})
		start := time.Now()
		a := w.block("m", "a", 2*time.Hour, 0)
		w.acquire("n", "a", sec, 0)
		<-a.woken
		if took := time.Since(start); took != 30*sec {
			t.Errorf("a was woken after %v, want 30 s", took)
		}
		if o := a.end(simba.EndWoken); o.Status != simba.StatusRenewed || o.Token != 7 || o.TTL != 2*time.Hour {
			t.Errorf("End of a: %+v; want renewed with token 7", o)
		}
		synctest.Wait()
		if q := append(w.queue("m"), w.queue("n")...); len(q) != 0 {
			t.Errorf("waiters after the recovery delay: %v; want none", q)
		}
		if got := w.owner("n"); got.Token != 6 || got.TTL < time.Hour-31*sec {
			t.Errorf("owner %+v, want the recovered lease, not renewed by a poll that has lapsed", got)
		}
		w.audit()
	})
}

func TestAPollingWaiterGetsAReservationHoweverShortTheGrace(t *testing.T) {
	for _, grace := range []time.Duration{0, testWindow / 2} {
		inBubble(t, func(w *world) {
			w.e.SetQueueGrace(grace)
			w.acquire("m", "a", sec, 0)
			w.poll("m", "b", sec)
			time.Sleep(sec)
			synctest.Wait()
			if got := w.offers("m", "b"); len(got) != 1 {
				w.t.Fatalf("grace %v: b got the notices %q, want one", grace, got)
			}
			time.Sleep(testWindow - 1)
			if o := w.acquire("m", "c", sec, 0); o.Status != simba.StatusQueued {
				w.t.Errorf("grace %v: ACQUIRE of c, which has no reservation: %+v; want queued", grace, o)
			}
			if o := w.acquire("m", "b", sec, 0); o.Status != simba.StatusAcquired {
				w.t.Errorf("grace %v: ACQUIRE of b, which has the reservation: %+v; want acquired", grace, o)
			}
		})
	}
}

func TestALeaseThatIsLoadedSlowlyEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := newWorld(t, Recovery{Leases: func(yield func(simba.Lease, error) bool) {
			yield(simba.Lease{Mutex: "m", Owner: "a", Token: 1, Acquired: 1000, TTL: 5 * sec}, nil)
			time.Sleep(3 * sec)
		}})
		b := w.block("m", "b", sec, 0)
		<-b.woken
		if took := time.Since(start); took != 5*sec {
			t.Errorf("the lease ended after %v, want 5 s", took)
		}
	})
}

func TestAWaiterThatMissedItsReservationAndBlocksIsGranted(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		for _, who := range []string{"b", "c"} {
			w.poll("m", who, time.Hour)
		}
		w.release("m", "a")
		time.Sleep(testWindow) // the reservation of b has ended, and c has the next one
		b := w.block("m", "b", time.Hour, 0)
		time.Sleep(testWindow)
		b.granted()
	})
}

func TestAFreshSubscriptionIsNotifiedAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.poll("m", "b", sec)
		w.release("m", "a")
		// The first notice may have gone to a broken connection.
		w.recorder.unsubscribe(simba.ContenderChannel("m", "b"))
		time.Sleep(2 * testWindow)
		w.listen("m", "b")
		if got := w.offers("m", "b"); len(got) != 2 {
			w.t.Errorf("b got the notices %q, want two", got)
		}
	})
}

func TestAGuardedLeaseIsNotAbandoned(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", time.Hour, 0)
		w.block("m", "c", time.Hour, 0)
		w.release("m", "a")
		b.granted()
		w.guard("m", "b", time.Hour, 0, 0) // on another connection, so b knows of its lease
		w.mustCommit(b.ticket.Abandon())
		if got := w.owner("m"); got.Owner != "b" {
			w.t.Errorf("owner %+v, want b", got)
		}
	})
}

func TestABindingEndsWithItsTenure(t *testing.T) {
	inBubble(t, func(w *world) {
		w.ask(simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: sec, Session: 7})
		w.acquire("m", "b", sec, 0) // the queue keeps the mutex in memory between the tenures
		w.release("m", "a")
		w.acquire("m", "a", time.Hour, 0)
		if w.askRelease(simba.ReleaseRequest{Mutex: "m", Contender: "a", Session: 7}) {
			w.t.Error("Release of the session of an earlier tenure returned true, want false")
		}
	})
}

func TestRemainingTimeIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		-1: 0, 0: 0, 1: ms, ms - 1: ms, ms: ms, ms + 1: 2 * ms,
	} {
		if got := remaining(simba.Instant(5000).Add(d), 5000); got != want {
			t.Errorf("remaining(%v) is %v, want %v", d, got, want)
		}
	}
}

func TestTheHistoryOfEarlierRunsIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Seq: 9, History: []simba.Event{
			{Seq: 8, Kind: simba.EventAcquired, Mutex: "m", Owner: "old", Token: 3},
			{Seq: 9, Kind: simba.EventReleased, Mutex: "m", Owner: "old", Token: 3},
		}})
		if o := w.acquire("m", "new", sec, 0); o.Seq <= 9 {
			t.Errorf("the change has Seq %d, want more than 9 of the earlier runs", o.Seq)
		}
		if got := w.history("m"); !slices.Equal(got, []string{"acquired old", "released old", "acquired new"}) {
			t.Errorf("history %q, want the events of both runs", got)
		}
	})
}

func TestManyPollingWaitersLapseTogether(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.e.SetQueueGrace(0)
		var stay []string
		for i := range 200 {
			name := fmt.Sprint("c", i)
			if i%3 == 0 {
				w.block("m", name, sec, 0)
				stay = append(stay, name)
			} else {
				w.acquire("m", name, sec, 0)
			}
		}
		w.guard("m", "a", 3*time.Hour, 0, 0)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if q := w.queue("m"); !slices.Equal(q, stay) {
			w.t.Errorf("queue %q, want only the blocked waiters %q", q, stay)
		}
	})
}
