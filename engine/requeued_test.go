package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

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
			inBubble(t, func(w *world) {
				a := w.acquire("m", "a", time.Hour, 0)
				b, c := w.block("m", "b", 10*ms, 0), w.block("m", "c", time.Hour, 0)
				w.release("m", "a")
				end.by(w)
				synctest.Wait()
				w.audit()
				// Other waiters go on: b may never come back.
				if o := c.granted(); o.Token != a.Token+end.others {
					w.t.Errorf("c: %+v", o)
				}
				if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting || o.Owner != "c" || o.Position != 1 {
					w.t.Errorf("b: %+v", o)
				}
				w.block("m", "d", sec, 0)
				w.release("m", "c")
				if o := b.granted(); o.Token != a.Token+end.others+1 || o.TTL != 10*ms {
					w.t.Errorf("b: %+v", o)
				}
				w.audit()
				time.Sleep(10 * ms) // b knew of this one, and does not want another
				synctest.Wait()
				if got := w.owner("m"); got.Owner != "d" || got.Waiters != 0 {
					w.t.Errorf("%+v", got)
				}
			})
		})
	}
}

func TestAWaitThatEndsInTheStepThatGrantsItIsNotWokenForThat(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", sec, 0)
		b := w.block("m", "b", sec, 0)
		sh, _ := w.e.shard("m")
		sh.timer.Stop() // so that nobody sees the end of a's lease before
		time.Sleep(sec)
		if o := b.end(simba.EndTimeout); o.Status != simba.StatusAcquired || o.Owner != "b" || b.isWoken() {
			w.t.Errorf("%+v", o)
		}
	})
}

// waitingOn returns the only waiter of m. Its lease ended before it could see it.
func (w *world) waitingOn(contender string) *blocked {
	w.t.Helper()
	w.acquire("m", "a", time.Hour, 0)
	b := w.block("m", contender, 10*ms, 0)
	w.release("m", "a")
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
				inBubble(t, func(w *world) {
					b := w.waitingOn("b")
					ask(w)
					w.block("m", "c", sec, 0)
					o := b.end(why)
					if got := w.owner("m"); got.Owner != "b" || o.Token != got.Token {
						w.t.Errorf("the waiter gets %+v, and %+v owns it", o, got)
					}
					if _, err := b.ticket.Abandon(); err != nil || w.owner("m").Owner != "b" {
						w.t.Errorf("handed off: %v", err)
					}
				})
			})
		}
	}
}

func TestARequeuedWaiterHasOneEntryWhateverAScriptDoes(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", 10*sec, 0)
		w.release("m", "a")
		w.commit(func(tx simba.Tx) {
			tx.Enqueue("m", "b", 5)
			tx.Take("m", str("x", sec))
		})
		w.audit()
		if got := w.queue("m"); !slices.Equal(got, []string{"b"}) {
			w.t.Errorf("%q", got)
		}
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			w.t.Errorf("%+v", o)
		}
		time.Sleep(sec)
		if o := b.granted(); o.TTL != 10*sec { // which waits until all is at rest
			w.t.Errorf("%+v", o)
		}
	})
}

func TestRequeuedWaitersKeepTheirOrder(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b, c, d := w.block("m", "b", 10*ms, 0), w.block("m", "c", 10*ms, 0), w.block("m", "d", 10*ms, 0)
		w.release("m", "a")
		time.Sleep(time.Minute) // all three are granted it, and none sees its lease
		synctest.Wait()
		if got := w.queue("m"); w.owner("m").Owner != "" || !slices.Equal(got, []string{"b", "c", "d"}) {
			w.t.Errorf("%q", got)
		}
		for _, x := range []*blocked{d, c} { // the first to show up is not served first
			if o := x.end(simba.EndWoken); o.Status != simba.StatusWaiting {
				w.t.Errorf("%+v", o)
			}
		}
		for _, x := range []*blocked{b, c, d} {
			o := x.granted()
			w.audit()
			w.release("m", o.Owner)
		}
	})
}

func TestAWaiterWhoseLeaseEndedBeforeItsFsyncComesFirstAgain(t *testing.T) {
	inBubbleOnDisk(t, func(w *world, g *gate) {
		w.acquire("m", "a", 10*sec, 0)
		b := w.block("m", "b", sec, 0)
		g.set(false)
		time.Sleep(20 * sec) // b is granted the mutex and its lease ends, while the disk hangs
		if o, _, err := w.e.Acquire(w.t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: time.Hour}); err != nil || o.Status != simba.StatusAcquired {
			w.t.Fatalf("%+v %v", o, err)
		}
		g.set(true)
		w.block("m", "c", sec, 0)
		w.release("m", "x") // before b's connection runs
		if got := w.owner("m"); got.Owner != "b" {
			w.t.Errorf("%q owns the mutex, and b came first", got.Owner)
		}
		time.Sleep(sec) // b does not come though it could: its second lease ends
		if got := w.owner("m"); got.Owner != "c" {
			w.t.Errorf("%q owns the mutex, and b does not come", got.Owner)
		}
		time.Sleep(sec)
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			w.t.Errorf("%+v", o)
		}
		if o := b.granted(); o.Owner != "b" {
			w.t.Errorf("%+v", o)
		}
	})
}

func TestAnAbsentWaiterGetsOneOfferHoweverOftenTheDiskHangs(t *testing.T) {
	inBubbleOnDisk(t, func(w *world, g *gate) {
		w.acquire("m", "a", 10*sec, 0)
		b := w.block("m", "b", 3*sec, 0)
		g.set(false)
		time.Sleep(20 * sec) // b is granted the mutex and its lease ends, while the disk hangs
		for hang, want := range []string{"b", "", ""} {
			o, _, err := w.e.Acquire(w.t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: 10 * sec})
			if err != nil || o.Status != simba.StatusAcquired {
				w.t.Fatalf("%+v %v", o, err)
			}
			g.set(true) // for a moment: the grant that b missed is durable
			g.set(false)
			time.Sleep(11 * sec) // the lease of x ends
			if got, _, err := w.e.Owner(w.t.Context(), "m"); err != nil || got.Owner != want {
				w.t.Errorf("hang %d: %q owns the mutex, not %q (%v)", hang, got.Owner, want, err)
			}
			time.Sleep(11 * sec)
		}
		g.set(true)
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			w.t.Errorf("%+v", o)
		}
		if o := b.granted(); o.Owner != "b" {
			w.t.Errorf("%+v", o)
		}
	})
}

func TestAReleaseEndsTheWaitOfATenureThatIsNotDurable(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", sec, 0)
		w.release("m", "a")
		w.release("m", "b")
		if o := b.end(simba.EndWoken); o.Status != simba.StatusTimeout || o.Owner != "" {
			w.t.Errorf("%+v", o)
		}
	})
}
