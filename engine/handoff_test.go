package engine

import (
	"context"
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

func TestAWaiterWhoseLeaseEndedUnseenKeepsItsQueueEntry(t *testing.T) {
	for _, end := range []struct {
		name   string
		others uint64 // tenures until c's
		by     func(*world)
	}{
		{"expired", 2, func(*world) { time.Sleep(10 * ms) }},
		{"broken", 2, func(w *world) {
			_, seq, err := w.e.Break(context.Background(), "m", "")
			w.mustCommit(seq, err)
		}},
		{"taken", 3, func(w *world) {
			w.commit(func(tx simba.Tx) { tx.Take("m", str("x", 10*ms)) })
			time.Sleep(10 * ms)
		}},
	} {
		t.Run(end.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Recovery{})
				a := w.acquire("m", "a", time.Hour, 0)
				b, c := w.block("m", "b", 10*ms, 0), w.block("m", "c", time.Hour, 0)
				w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
				end.by(w)
				synctest.Wait()
				w.audit()
				// Other waiters go on: b may never come back.
				if o := c.granted(); o.Token != a.Token+end.others {
					t.Errorf("c: %+v", o)
				}
				if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting || o.Owner != "c" || o.Position != 1 {
					t.Errorf("b: %+v", o)
				}
				w.block("m", "d", sec, 0)
				w.release(simba.ReleaseRequest{Mutex: "m", Contender: "c"})
				if o := b.granted(); o.Token != a.Token+end.others+1 || o.TTL != 10*ms {
					t.Errorf("b: %+v", o)
				}
				w.audit()
				time.Sleep(10 * ms) // b knew of this one, and does not want another
				synctest.Wait()
				if got := w.owner("m"); got.Owner != "d" || got.Waiters != 0 {
					t.Errorf("%+v", got)
				}
				w.audit()
			})
		})
	}
}

func TestAWaitThatEndsInTheStepThatGrantsItIsNotWokenForThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", sec, 0)
		b := w.block("m", "b", sec, 0)
		sh, _ := w.e.shard("m")
		sh.timer.Stop() // so that nobody sees the end of a's lease before
		time.Sleep(sec)
		if o := b.end(simba.EndTimeout); o.Status != simba.StatusAcquired || o.Owner != "b" || b.isWoken() {
			t.Errorf("%+v", o)
		}
	})
}

// waitingOn returns the only waiter of m. Its lease ended before it could see it.
func (w *world) waitingOn(contender string) *blocked {
	w.t.Helper()
	w.acquire("m", "a", time.Hour, 0)
	b := w.block("m", contender, 10*ms, 0)
	w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
	time.Sleep(20 * ms)
	synctest.Wait()
	w.audit()
	return b
}

func TestAWaitingContenderMayBeGrantedOnAnotherConnection(t *testing.T) {
	for name, ask := range map[string]func(*world){
		"by asking again": func(w *world) { w.acquire("m", "b", time.Hour, 0) },
		"as a key":        func(w *world) { w.commit(func(tx simba.Tx) { tx.Take("m", str("b", time.Hour)) }) },
	} {
		for _, why := range []simba.EndReason{simba.EndGone, simba.EndWoken} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, Recovery{})
					b := w.waitingOn("b")
					ask(w)
					w.block("m", "c", sec, 0)
					o := b.end(why)
					if got := w.owner("m"); got.Owner != "b" || o.Token != got.Token {
						t.Errorf("the waiter gets %+v, and %+v owns it", o, got)
					}
					if _, err := b.ticket.Abandon(); err != nil || w.owner("m").Owner != "b" {
						t.Errorf("passed on: %v", err)
					}
					w.audit()
				})
			})
		}
	}
}

func TestARequeuedWaiterHasOneEntryWhateverAScriptDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", 10*sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		w.commit(func(tx simba.Tx) {
			tx.Enqueue("m", "b", 5)
			tx.Take("m", str("x", sec))
		})
		w.audit()
		if got := w.queue("m"); !slices.Equal(got, []string{"b"}) {
			t.Errorf("%q", got)
		}
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			t.Errorf("%+v", o)
		}
		time.Sleep(sec)
		if o := b.granted(); o.TTL != 10*sec { // which waits until all is at rest
			t.Errorf("%+v", o)
		}
		w.audit()
	})
}

func TestRequeuedWaitersKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		b, c, d := w.block("m", "b", 10*ms, 0), w.block("m", "c", 10*ms, 0), w.block("m", "d", 10*ms, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		time.Sleep(time.Minute) // all three are granted it, and none sees its lease
		synctest.Wait()
		if got := w.queue("m"); w.owner("m").Owner != "" || !slices.Equal(got, []string{"b", "c", "d"}) {
			t.Errorf("%q", got)
		}
		for _, x := range []*blocked{d, c} { // the first to show up is not served first
			if o := x.end(simba.EndWoken); o.Status != simba.StatusWaiting {
				t.Errorf("%+v", o)
			}
		}
		for _, x := range []*blocked{b, c, d} {
			o := x.granted()
			w.audit()
			w.release(simba.ReleaseRequest{Mutex: "m", Contender: o.Owner})
		}
	})
}

func TestAWaiterWhoseLeaseEndedBeforeItsFsyncComesFirstAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWorldOn(t, g, Recovery{})
		g.set(true)
		w.acquire("m", "a", 10*sec, 0)
		b := w.block("m", "b", sec, 0)
		g.set(false)
		time.Sleep(20 * sec) // b is granted the mutex and its lease ends, while the disk hangs
		if o, _, err := w.e.Acquire(t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: time.Hour}); err != nil || o.Status != simba.StatusAcquired {
			t.Fatalf("%+v %v", o, err)
		}
		g.set(true)
		w.block("m", "c", sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "x"}) // before b's connection runs
		if got := w.owner("m"); got.Owner != "b" {
			t.Errorf("%q owns the mutex, and b came first", got.Owner)
		}
		time.Sleep(sec) // b does not come though it could: its second lease ends
		if got := w.owner("m"); got.Owner != "c" {
			t.Errorf("%q owns the mutex, and b does not come", got.Owner)
		}
		time.Sleep(sec)
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			t.Errorf("%+v", o)
		}
		if o := b.granted(); o.Owner != "b" {
			t.Errorf("%+v", o)
		}
		w.audit()
	})
}

func TestAnAbsentWaiterGetsOneOfferHoweverOftenTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWorldOn(t, g, Recovery{})
		g.set(true)
		w.acquire("m", "a", 10*sec, 0)
		b := w.block("m", "b", 3*sec, 0)
		g.set(false)
		time.Sleep(20 * sec) // b is granted the mutex and its lease ends, while the disk hangs
		for hang, want := range []string{"b", "", ""} {
			o, _, err := w.e.Acquire(t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: 10 * sec})
			if err != nil || o.Status != simba.StatusAcquired {
				t.Fatalf("%+v %v", o, err)
			}
			g.set(true) // for a moment: the grant that b missed is durable
			g.set(false)
			time.Sleep(11 * sec) // the lease of x ends
			if got, _, err := w.e.Owner(t.Context(), "m"); err != nil || got.Owner != want {
				t.Errorf("hang %d: %q owns the mutex, not %q (%v)", hang, got.Owner, want, err)
			}
			time.Sleep(11 * sec)
		}
		g.set(true)
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			t.Errorf("%+v", o)
		}
		if o := b.granted(); o.Owner != "b" {
			t.Errorf("%+v", o)
		}
		w.audit()
	})
}

func TestAReleaseEndsTheWaitOfATenureThatIsNotDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "b"})
		if o := b.end(simba.EndWoken); o.Status != simba.StatusTimeout || o.Owner != "" {
			t.Errorf("%+v", o)
		}
		w.audit()
	})
}

func TestAReachablePollingWaiterGetsAReservationAndANotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("m", "a", time.Hour, 0)
		w.listen("m", "b")
		w.acquire("m", "b", sec, 0)
		w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if got := w.reservations("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
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
		if got := w.reservations("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
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
		if got := w.reservations("m", "b"); len(got) != 2 {
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
		if got := w.reservations("m", "b"); len(got) != 0 {
			t.Fatalf("notified without a subscription: %q", got)
		}
		w.listen("m", "b")
		if got := w.reservations("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
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
		if len(w.reservations("m", "b")) != 1 || len(w.reservations("m", "c")) != 1 {
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
