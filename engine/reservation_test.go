package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestAReachablePollingWaiterGetsAReservationAndANotice(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.poll("m", "b", sec)
		w.release("m", "a")
		if got := w.offers("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
			w.t.Fatalf("b got the notices %q, want the release of a", got)
		}
		time.Sleep(testWindow / 4)
		o := w.acquire("m", "c", sec, 0)
		if o.Status != simba.StatusQueued || o.Owner != "" || o.Position != 2 {
			w.t.Errorf("ACQUIRE of c, which has no reservation: %+v; want queued at position 2", o)
		}
		if o.Transition != testWindow*3/4 {
			w.t.Errorf("Transition in the reply to c is %v, want the %v left of the reservation", o.Transition, testWindow*3/4)
		}
		time.Sleep(testWindow*3/4 - 1)
		if o := w.acquire("m", "b", sec, 0); o.Status != simba.StatusAcquired {
			w.t.Errorf("ACQUIRE of b, which has the reservation: %+v; want acquired", o)
		}
	})
}

func TestAMissedReservationGoesToTheNextWaiter(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.poll("m", "b", sec)
		c := w.block("m", "c", sec, 0)
		w.release("m", "a")
		start := time.Now()
		<-c.woken
		if took := time.Since(start); took != testWindow {
			w.t.Errorf("c was granted the mutex after %v, want %v, the handoff window", took, testWindow)
		}
		c.granted()
	})
}

func TestASubscriberThatVanishedLosesItsReservationAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.poll("m", "b", sec)
		c := w.block("m", "c", sec, 0)
		w.recorder.deaf = map[string]bool{simba.ContenderChannel("m", "b"): true}
		start := time.Now()
		w.release("m", "a")
		c.granted()
		if took := time.Since(start); took != 0 {
			w.t.Errorf("c waited %v for a disconnected subscriber, want 0", took)
		}
	})
}

func TestBrokenConnectionIsStillReachableByItsSubscription(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.listen("m", "b")
		w.block("m", "b", sec, 0).end(simba.EndGone)
		w.release("m", "a")
		if got := w.offers("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
			w.t.Errorf("b got the notices %q, want the release of a", got)
		}
	})
}

func TestASubscriberThatCameBackIsNotifiedAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.poll("m", "b", sec)
		w.recorder.late = map[string]bool{simba.ContenderChannel("m", "b"): true}
		w.release("m", "a")
		if got := w.offers("m", "b"); len(got) != 2 {
			w.t.Errorf("b got %d notices, want 2", len(got))
		}
	})
}

func TestAnUnreachablePollingWaiterIsSkippedAndKeepsItsEntry(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.acquire("m", "mute", sec, 0)
		c := w.block("m", "c", time.Hour, 0)
		w.release("m", "a")
		c.granted()
		if q := w.queue("m"); !slices.Equal(q, []string{"mute"}) {
			w.t.Errorf("queue %v, want mute alone", q)
		}
	})
}

func TestAWaiterThatSubscribesWhileTheMutexIsFreeIsNotified(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.acquire("m", "b", sec, 0)
		w.release("m", "a")
		if got := w.offers("m", "b"); len(got) != 0 {
			w.t.Fatalf("b got the notices %q without a subscription, want none", got)
		}
		w.listen("m", "b")
		if got := w.offers("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
			w.t.Errorf("b got the notices %q, want the release of a", got)
		}
	})
}

func TestHandoffWindowOfZeroIsFreeForAll(t *testing.T) {
	inBubble(t, func(w *world) {
		w.e.SetHandoffWindow(0)
		w.acquire("m", "a", time.Hour, 0)
		for _, c := range []string{"b", "c"} {
			w.poll("m", c, time.Hour)
		}
		w.release("m", "a")
		if len(w.offers("m", "b")) != 1 || len(w.offers("m", "c")) != 1 {
			w.t.Error("b and c did not get one notice each")
		}
		if o := w.acquire("m", "stranger", time.Hour, 0); o.Status != simba.StatusAcquired {
			w.t.Errorf("ACQUIRE of a contender without a notice: %+v; want acquired", o)
		}
		d := w.block("m", "d", time.Hour, 0)
		w.release("m", "stranger")
		d.granted() // the two polling waiters before d got notices, but sent no ACQUIRE
	})
}

func TestLeavingHandsTheReservationOff(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.poll("m", "b", sec)
		c := w.block("m", "c", sec, 0)
		w.release("m", "a")
		w.release("m", "b")
		c.granted()
	})
}

func TestPollingWaiterLapsesAfterTheGrace(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 10*sec, 0)
		w.acquire("m", "b", sec, 0) // the reply shows a lease that ends in 10 s
		time.Sleep(10*sec + testGrace - 1)
		if q := w.queue("m"); !slices.Equal(q, []string{"b"}) {
			w.t.Errorf("queue before the end of the queue grace: %v; want b", q)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if q := w.queue("m"); len(q) != 0 {
			w.t.Errorf("queue after the end of the queue grace: %v; want nobody", q)
		}
		if s := w.e.Stats(); s.Mutexes != 0 || s.Polling != 0 {
			w.t.Errorf("stats %+v, want no mutex and no waiter", s)
		}
	})
}

func TestNoQueueAddsNoEntryAndKeepsAnExistingOne(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", sec, 0)
		r := simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: sec, NoQueue: true}
		if o := w.ask(r); o.Status != simba.StatusBusy || o.Position != 0 {
			w.t.Errorf("NOQUEUE request of a contender that does not wait: %+v; want busy without a position", o)
		}
		w.acquire("m", "b", sec, 0)
		if o := w.ask(r); o.Status != simba.StatusBusy || o.Position != 1 {
			w.t.Errorf("NOQUEUE request of a waiter: %+v; want busy at position 1", o)
		}
	})
}

// The mutex had no owner in this run, so replies about it wait for no change.
func TestAMissedReservationAfterTheRecoveryDelayGoesToTheNextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Delay: 2 * sec})
		w.recorder.deaf = map[string]bool{simba.ContenderChannel("m", "a"): true}
		for _, c := range []string{"a", "b"} {
			w.listen("m", c)
			if o := w.acquire("m", c, sec, 0); o.Status != simba.StatusQueued {
				t.Fatalf("ACQUIRE of %s: %+v; want queued", c, o)
			}
		}
		time.Sleep(2 * sec)
		synctest.Wait()
		if got := w.recorder.published(simba.ContenderChannel("m", "b")); len(got) != 1 {
			t.Errorf("the next waiter got the notices %q, want one", got)
		}
	})
}
