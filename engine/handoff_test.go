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
	inBubble(t, func(w *world) {
		a := w.acquire("m", "a", 10*sec, 0)
		b := w.block("m", "b", 3*sec, sec)
		c := w.block("m", "c", 5*sec, 0)
		w.release("m", "a")
		o := b.granted()
		if o.Owner != "b" || o.Token <= a.Token || o.TTL != 3*sec || o.Transition != 4*sec {
			w.t.Errorf("b was granted %+v; want a larger token and its own windows", o)
		}
		if c.isWoken() {
			w.t.Error("c was woken, want only the first waiter b")
		}
		if got := w.recorder.published(simba.MutexChannel("m")); !slices.Equal(got, []string{"acquired@@a", "acquired@@b"}) {
			w.t.Errorf("notices of the mutex: %q, want the grants of a and b", got)
		}
	})
}

func TestExpiryGrantsTheNextAtTransitionAtByItself(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.acquire("m", "a", 10*sec, 2*sec)
		start := time.Now()
		b := w.block("m", "b", sec, 0)
		<-b.woken
		if took := time.Since(start); took != 12*sec {
			w.t.Errorf("the mutex was handed off after %v, want 12 s", took)
		}
		if o := b.granted(); o.Token <= a.Token {
			w.t.Errorf("b was granted %+v; want a larger token", o)
		}
	})
}

func TestRenewalPostponesTheHandoff(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 10*sec, 0)
		start := time.Now()
		b := w.block("m", "b", sec, 0)
		time.Sleep(9 * sec)
		w.guard("m", "a", 10*sec, 0, 0)
		<-b.woken
		if took := time.Since(start); took != 19*sec {
			w.t.Errorf("the mutex was handed off after %v, want 19 s", took)
		}
	})
}

func TestBreakHandsOffToTheNextWaiter(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		freed, seq, err := w.e.Break(w.t.Context(), "m", "")
		w.mustCommit(seq, err)
		if !freed || b.granted().Owner != "b" {
			w.t.Error("the break did not hand the mutex off")
		}
	})
}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "owner", time.Hour, 0)
		var waiting []*blocked
		for i := range 100 { // enough for the queue to index its entries by name
			waiting = append(waiting, w.block("m", fmt.Sprintf("c%02d", 99-i), time.Hour, 0))
		}
		last := "owner"
		for i, b := range waiting {
			w.release("m", last)
			last = b.granted().Owner
			if want := fmt.Sprintf("c%02d", 99-i); last != want {
				w.t.Fatalf("handoff %d: the mutex went to %s, want %s", i, last, want)
			}
			w.audit()
		}
	})
}

func TestDeadWaiterIsSkipped(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		dead := w.block("m", "dead", sec, 0)
		b := w.block("m", "b", sec, 0)
		dead.end(simba.EndGone)
		w.release("m", "a")
		if b.granted().Owner != "b" {
			w.t.Error("b did not get the mutex")
		}
		if dead.isWoken() {
			w.t.Error("the disconnected waiter was woken")
		}
	})
}

func TestAWaiterThatDiedAfterItsGrantIsSkippedInTheSameStep(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		dead := w.block("m", "dead", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		w.release("m", "a")
		if o := dead.end(simba.EndGone); o.Status == simba.StatusAcquired || o.Owner != "b" {
			w.t.Errorf("End of the disconnected waiter: %+v; want b as the owner", o)
		}
		b.granted()
	})
}

func TestAGrantWhoseWaiterIsGoneIsHandedOff(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		dead := w.block("m", "dead", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		w.release("m", "a")
		dead.granted()
		w.mustCommit(dead.ticket.Abandon())
		b.granted()
		w.mustCommit(dead.ticket.Abandon()) // has no effect, because the tenure is over
		if got := w.owner("m"); got.Owner != "b" {
			w.t.Errorf("owner %+v, want b", got)
		}
	})
}

func TestAWaiterThatReconnectsKeepsTheGrantOfItsOldConnection(t *testing.T) {
	for _, how := range []string{"end", "abandon"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.acquire("m", "a", time.Hour, 0)
				b := w.block("m", "b", time.Hour, 0)
				w.block("m", "c", time.Hour, 0)
				w.release("m", "a")
				if how == "abandon" {
					b.granted()
				}
				if o := w.acquire("m", "b", time.Hour, 0); o.Status != simba.StatusRenewed {
					w.t.Fatalf("ACQUIRE of b after its grant: %+v; want renewed", o)
				}
				if how == "abandon" {
					w.mustCommit(b.ticket.Abandon())
				} else {
					b.end(simba.EndGone)
				}
				if got := w.owner("m"); got.Owner != "b" {
					w.t.Errorf("owner %+v, want b, which saw its lease", got)
				}
			})
		})
	}
}

func TestBrokenConnectionKeepsItsQueueEntry(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 10*sec, 0)
		b := w.block("m", "b", sec, 0)
		w.block("m", "c", sec, 0)
		b.end(simba.EndGone)
		if q := w.queue("m"); !slices.Equal(q, []string{"b", "c"}) {
			w.t.Fatalf("queue %v, want b and c", q)
		}
		b = w.block("m", "b", sec, 0)
		if q := w.queue("m"); !slices.Equal(q, []string{"b", "c"}) {
			w.t.Fatalf("queue after b has returned: %v; want b and c", q)
		}
		w.release("m", "a")
		b.granted()
	})
}

func TestSecondConnectionOfAContenderTakesOverItsQueueEntry(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		old := w.block("m", "b", sec, 0)
		now := w.block("m", "b", sec, 0)
		synctest.Wait()
		if !old.isWoken() {
			w.t.Fatal("the first connection was not woken")
		}
		if o := old.end(simba.EndWoken); o.Status != simba.StatusQueued || o.Position != 1 {
			w.t.Errorf("End of the first connection: %+v; want queued at position 1", o)
		}
		w.release("m", "a")
		now.granted()
	})
}

func TestTimeoutLeavesTheQueueButReturnsAGrantThatCameFirst(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", time.Hour, 0)
		c := w.block("m", "c", time.Hour, 0)
		if o := b.end(simba.EndTimeout); o.Status != simba.StatusTimeout || o.Owner != "a" || o.Position != 0 {
			w.t.Errorf("End of a timed-out waiter: %+v; want timeout with the owner a", o)
		}
		w.release("m", "a")
		if o := c.end(simba.EndTimeout); o.Status != simba.StatusAcquired {
			w.t.Errorf("End of a waiter that was granted the mutex before its timeout: %+v; want acquired", o)
		}
	})
}

func TestReleaseByAWaiterEndsItsWaitElsewhere(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		if w.release("m", "b") {
			w.t.Error("Release of the waiter b returned true, want false")
		}
		synctest.Wait()
		if !b.isWoken() || b.end(simba.EndWoken).Status != simba.StatusTimeout {
			w.t.Error("after Release b was not woken with a timeout")
		}
	})
}
