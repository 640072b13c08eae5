package engine

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestReleaseGrantsTheFirstBlockedWaiterInTheSameStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		a := w.acquire("m", "a", 10*sec, 0)
		b := w.block("m", "b", 3*sec, sec)
		c := w.block("m", "c", 5*sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		o := b.granted()
		if o.Owner != "b" || o.Token <= a.Token || o.TTL != 3*sec || o.Transition != 4*sec {
			t.Errorf("b got %+v", o)
		}
		if c.isWoken() {
			t.Error("c was woken too")
		}
		if got := w.recorder.published(simba.MutexChannel("m")); !slices.Equal(got, []string{"acquired@@a", "acquired@@b"}) {
			t.Errorf("notices %q", got)
		}
		w.audit()
	})
}

func TestExpiryGrantsTheNextAtTransitionAtByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		a := w.acquire("m", "a", 10*sec, 2*sec)
		start := time.Now()
		b := w.block("m", "b", sec, 0)
		<-b.woken
		if took := time.Since(start); took != 12*sec {
			t.Errorf("handed over after %v", took)
		}
		if o := b.granted(); o.Token <= a.Token {
			t.Errorf("b got %+v", o)
		}
	})
}

func TestRenewalPostponesTheHandoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", 10*sec, 0)
		start := time.Now()
		b := w.block("m", "b", sec, 0)
		time.Sleep(9 * sec)
		w.guard("m", "a", 10*sec, 0, 0)
		<-b.woken
		if took := time.Since(start); took != 19*sec {
			t.Errorf("handed over after %v", took)
		}
	})
}

func TestBreakHandsOffToTheNextWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		freed, seq, err := w.e.Break(t.Context(), "m", "")
		w.mustCommit(seq, err)
		if !freed || b.granted().Owner != "b" {
			t.Error("break did not hand on")
		}
	})
}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "owner", time.Hour, 0)
		var waiting []*blocked
		for i := range 100 { // enough for the index by name
			waiting = append(waiting, w.block("m", fmt.Sprintf("c%02d", 99-i), time.Hour, 0))
		}
		last := "owner"
		for i, b := range waiting {
			w.release(simba.ReleaseRequest{Mutex: "m", Contender: last})
			last = b.granted().Owner
			if want := fmt.Sprintf("c%02d", 99-i); last != want {
				t.Fatalf("offer %d: %s, want %s", i, last, want)
			}
			w.audit()
		}
	})
}

func TestDeadWaiterIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		dead := w.block("m", "dead", sec, 0)
		b := w.block("m", "b", sec, 0)
		dead.end(simba.EndGone)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if b.granted().Owner != "b" {
			t.Error("b did not get it")
		}
		if dead.isWoken() {
			t.Error("the dead was woken")
		}
	})
}

func TestAWaiterThatDiedAfterItsGrantIsSkippedInTheSameStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		dead := w.block("m", "dead", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if o := dead.end(simba.EndGone); o.Status == simba.StatusAcquired || o.Owner != "b" {
			t.Errorf("the dead: %+v", o)
		}
		b.granted()
		w.audit()
	})
}

func TestAGrantWhoseWaiterIsGoneIsHandedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		dead := w.block("m", "dead", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		dead.granted()
		w.mustCommit(dead.ticket.Abandon())
		b.granted()
		w.mustCommit(dead.ticket.Abandon()) // too late to do harm
		if got := w.owner("m"); got.Owner != "b" {
			t.Errorf("owner %+v", got)
		}
		w.audit()
	})
}

func TestAWaiterThatReconnectsKeepsTheGrantOfItsOldConnection(t *testing.T) {
	for _, how := range []string{"end", "abandon"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Recovery{})
				w.acquire("m", "a", time.Hour, 0)
				b := w.block("m", "b", time.Hour, 0)
				w.block("m", "c", time.Hour, 0)
				w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
				if how == "abandon" {
					b.granted()
				}
				if o := w.acquire("m", "b", time.Hour, 0); o.Status != simba.StatusRenewed {
					t.Fatalf("b asks again: %+v", o)
				}
				if how == "abandon" {
					w.mustCommit(b.ticket.Abandon())
				} else {
					b.end(simba.EndGone)
				}
				if got := w.owner("m"); got.Owner != "b" {
					t.Errorf("taken from a waiter that saw it: %+v", got)
				}
			})
		})
	}
}

func TestBrokenConnectionKeepsItsQueueEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", 10*sec, 0)
		b := w.block("m", "b", sec, 0)
		w.block("m", "c", sec, 0)
		b.end(simba.EndGone)
		if q := w.queue("m"); !slices.Equal(q, []string{"b", "c"}) {
			t.Fatalf("queue %v", q)
		}
		b = w.block("m", "b", sec, 0)
		if q := w.queue("m"); !slices.Equal(q, []string{"b", "c"}) {
			t.Fatalf("queue after the return %v", q)
		}
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		b.granted()
	})
}

func TestSecondConnectionOfAContenderTakesOverItsQueueEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		old := w.block("m", "b", sec, 0)
		now := w.block("m", "b", sec, 0)
		synctest.Wait()
		if !old.isWoken() {
			t.Fatal("the first connection waits for ever")
		}
		if o := old.end(simba.EndWoken); o.Status != simba.StatusQueued || o.Position != 1 {
			t.Errorf("the first connection: %+v", o)
		}
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		now.granted()
		w.audit()
	})
}

func TestTimeoutLeavesTheQueueButReturnsAGrantThatCameFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", time.Hour, 0)
		c := w.block("m", "c", time.Hour, 0)
		if o := b.end(simba.EndTimeout); o.Status != simba.StatusTimeout || o.Owner != "a" || o.Position != 0 {
			t.Errorf("timeout: %+v", o)
		}
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if o := c.end(simba.EndTimeout); o.Status != simba.StatusAcquired {
			t.Errorf("granted before its time ran out: %+v", o)
		}
	})
}

func TestReleaseByAWaiterEndsItsWaitElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		if w.release(simba.ReleaseRequest{Mutex: "m", Contender: "b"}) {
			t.Error("b owned nothing")
		}
		synctest.Wait()
		if !b.isWoken() || b.end(simba.EndWoken).Status != simba.StatusTimeout {
			t.Error("b still waits")
		}
	})
}
