package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestAReachablePollingWaiterGetsAReservationAndANotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		w.listen("m", "b")
		w.acquire("m", "b", sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if got := w.offers("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
			t.Fatalf("b got the notices %q", got)
		}
		time.Sleep(testWindow / 4)
		o := w.acquire("m", "c", sec, 0)
		if o.Status != simba.StatusQueued || o.Owner != "" || o.Position != 2 {
			t.Errorf("c in b's reservation: %+v", o)
		}
		if o.Transition != testWindow*3/4 {
			t.Errorf("c would ask again after %v", o.Transition)
		}
		time.Sleep(testWindow*3/4 - 1)
		if o := w.acquire("m", "b", sec, 0); o.Status != simba.StatusAcquired {
			t.Errorf("b in its reservation: %+v", o)
		}
		w.audit()
	})
}

func TestAMissedReservationGoesToTheNextWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		w.listen("m", "b")
		w.acquire("m", "b", sec, 0)
		c := w.block("m", "c", sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		start := time.Now()
		<-c.woken
		if took := time.Since(start); took != testWindow {
			t.Errorf("c's reservation came after %v", took)
		}
		c.granted()
		w.audit()
	})
}

func TestASubscriberThatVanishedLosesItsReservationAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		w.listen("m", "b")
		w.acquire("m", "b", sec, 0)
		c := w.block("m", "c", sec, 0)
		w.recorder.deaf = map[string]bool{simba.ContenderChannel("m", "b"): true}
		start := time.Now()
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		c.granted()
		if took := time.Since(start); took != 0 {
			t.Errorf("c waited %v for a dead subscriber", took)
		}
		w.audit()
	})
}

func TestBrokenConnectionIsStillReachableByItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		w.listen("m", "b")
		w.block("m", "b", sec, 0).end(simba.EndGone)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if got := w.offers("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
			t.Errorf("b got the notices %q", got)
		}
	})
}

func TestASubscriberThatCameBackIsNotifiedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		w.listen("m", "b")
		w.acquire("m", "b", sec, 0)
		w.recorder.late = map[string]bool{simba.ContenderChannel("m", "b"): true}
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if got := w.offers("m", "b"); len(got) != 2 {
			t.Errorf("b was notified %d times", len(got))
		}
		w.audit()
	})
}

func TestAnUnreachablePollingWaiterIsSkippedAndKeepsItsEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		w.acquire("m", "mute", sec, 0)
		c := w.block("m", "c", time.Hour, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		c.granted()
		if q := w.queue("m"); !slices.Equal(q, []string{"mute"}) {
			t.Errorf("queue %v", q)
		}
	})
}

func TestAWaiterThatSubscribesWhileTheMutexIsFreeIsNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		w.acquire("m", "b", sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if got := w.offers("m", "b"); len(got) != 0 {
			t.Fatalf("notified without a subscription: %q", got)
		}
		w.listen("m", "b")
		if got := w.offers("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
			t.Errorf("b got the notices %q", got)
		}
		w.audit()
	})
}

func TestHandoffWindowOfZeroIsFreeForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.e.SetHandoffWindow(0)
		w.acquire("m", "a", time.Hour, 0)
		for _, c := range []string{"b", "c"} {
			w.listen("m", c)
			w.acquire("m", c, time.Hour, 0)
		}
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if len(w.offers("m", "b")) != 1 || len(w.offers("m", "c")) != 1 {
			t.Error("not every waiter was notified")
		}
		if o := w.acquire("m", "stranger", time.Hour, 0); o.Status != simba.StatusAcquired {
			t.Errorf("the mutex is kept: %+v", o)
		}
		d := w.block("m", "d", time.Hour, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "stranger"})
		d.granted() // behind two that are notified but do not come
		w.audit()
	})
}

func TestLeavingHandsTheReservationOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		w.listen("m", "b")
		w.acquire("m", "b", sec, 0)
		c := w.block("m", "c", sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "b"})
		c.granted()
	})
}

func TestPollingWaiterLapsesAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", 10*sec, 0)
		w.acquire("m", "b", sec, 0) // sees a lease that ends in 10 s
		time.Sleep(10*sec + testGrace - 1)
		if q := w.queue("m"); !slices.Equal(q, []string{"b"}) {
			t.Errorf("lapsed too early: %v", q)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if q := w.queue("m"); len(q) != 0 {
			t.Errorf("never lapses: %v", q)
		}
		if s := w.e.Stats(); s.Mutexes != 0 || s.Polling != 0 {
			t.Errorf("left over: %+v", s)
		}
	})
}

func TestNoQueueAddsNoEntryAndKeepsAnExistingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", sec, 0)
		r := simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: sec, NoQueue: true}
		if o := w.ask(r); o.Status != simba.StatusBusy || o.Position != 0 {
			t.Errorf("%+v", o)
		}
		w.acquire("m", "b", sec, 0)
		if o := w.ask(r); o.Status != simba.StatusBusy || o.Position != 1 {
			t.Errorf("%+v", o)
		}
	})
}

// Nobody owned the mutex in this run, so replies about it rest on no change.
func TestAMissedReservationAfterTheRecoveryDelayGoesToTheNextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Delay: 2 * sec})
		w.recorder.deaf = map[string]bool{simba.ContenderChannel("m", "a"): true}
		for _, c := range []string{"a", "b"} {
			w.listen("m", c)
			if o := w.acquire("m", c, sec, 0); o.Status != simba.StatusQueued {
				t.Fatalf("%s: %+v", c, o)
			}
		}
		time.Sleep(2 * sec)
		synctest.Wait()
		if got := w.recorder.published(simba.ContenderChannel("m", "b")); len(got) != 1 {
			t.Errorf("the next got the notices %q", got)
		}
	})
}
