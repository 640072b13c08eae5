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
		others uint64 // number of tenures that begin after a's, including c's
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
				// b may never call End, so other waiters get the mutex.
				if o := c.granted(); o.Token != a.Token+end.others {
					w.t.Errorf("c was granted %+v; want token %d", o, a.Token+end.others)
				}
				if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting || o.Owner != "c" || o.Position != 1 {
					w.t.Errorf("End of b before its second grant: %+v; want waiting at position 1 with the owner c", o)
				}
				w.block("m", "d", sec, 0)
				w.release("m", "c")
				if o := b.granted(); o.Token != a.Token+end.others+1 || o.TTL != 10*ms {
					w.t.Errorf("b was granted %+v; want the token after c's and its own TTL", o)
				}
				w.audit()
				time.Sleep(10 * ms) // b has seen this lease, so the engine does not queue b again
				synctest.Wait()
				if got := w.owner("m"); got.Owner != "d" || got.Waiters != 0 {
					w.t.Errorf("owner after b's second lease: %+v, want d", got)
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
		sh.timer.Stop() // so that no step ends a's lease before End
		time.Sleep(sec)
		if o := b.end(simba.EndTimeout); o.Status != simba.StatusAcquired || o.Owner != "b" || b.isWoken() {
			w.t.Errorf("End of b at its timeout: %+v; want acquired, and no wake-up", o)
		}
	})
}

func TestAWaiterWhoseLeaseExpiresInItsOwnEndIsGrantedTheMutexAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", 10*ms, 0)
		w.release("m", "a")
		sh, _ := w.e.shard("m")
		sh.timer.Stop() // so that no step ends b's lease before End
		time.Sleep(20 * ms)
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			w.t.Errorf("End of b: %+v, want waiting", o)
		}
		if o := b.granted(); o.Owner != "b" {
			w.t.Errorf("b was granted %+v; want b as the owner", o)
		}
	})
}

// waitingOn returns a blocked waiter that lost its lease before its connection called End.
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
		"by ACQUIRE":       func(w *world) { w.acquire("m", "b", time.Hour, 0) },
		"by a transaction": func(w *world) { w.commit(func(tx simba.Tx) { tx.Take("m", str("b", time.Hour)) }) },
	} {
		for _, why := range []simba.EndReason{simba.EndGone, simba.EndWoken} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(w *world) {
					b := w.waitingOn("b")
					ask(w)
					w.block("m", "c", sec, 0)
					o := b.end(why)
					if got := w.owner("m"); got.Owner != "b" || o.Token != got.Token {
						w.t.Errorf("End returned %+v, the owner is %+v; want b with one token", o, got)
					}
					if _, err := b.ticket.Abandon(); err != nil || w.owner("m").Owner != "b" {
						w.t.Errorf("Abandon of a waiter that saw its lease: error %v, or another owner", err)
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
			w.t.Errorf("queue %q, want b alone", got)
		}
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			w.t.Errorf("End of the requeued waiter: %+v; want waiting", o)
		}
		time.Sleep(sec)
		if o := b.granted(); o.TTL != 10*sec { // granted waits until all goroutines are idle
			w.t.Errorf("b was granted %+v; want a TTL of 10 s", o)
		}
	})
}

func TestRequeuedWaitersKeepTheirOrder(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		b, c, d := w.block("m", "b", 10*ms, 0), w.block("m", "c", 10*ms, 0), w.block("m", "d", 10*ms, 0)
		w.release("m", "a")
		time.Sleep(time.Minute) // b, c and d are granted the mutex, and none calls End in time
		synctest.Wait()
		if got := w.queue("m"); w.owner("m").Owner != "" || !slices.Equal(got, []string{"b", "c", "d"}) {
			w.t.Errorf("queue %q, want b, c, d", got)
		}
		for _, x := range []*blocked{d, c} { // c and d call End before b, but stay behind b
			if o := x.end(simba.EndWoken); o.Status != simba.StatusWaiting {
				w.t.Errorf("End of a requeued waiter: %+v; want waiting", o)
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
		time.Sleep(20 * sec) // while the disk hangs, b is granted the mutex and its lease ends
		if o, _, err := w.e.Acquire(w.t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: time.Hour}); err != nil || o.Status != simba.StatusAcquired {
			w.t.Fatalf("ACQUIRE of x while the disk hangs: %+v, %v; want acquired", o, err)
		}
		g.set(true)
		w.block("m", "c", sec, 0)
		w.release("m", "x") // before b's connection runs
		if got := w.owner("m"); got.Owner != "b" {
			w.t.Errorf("%q owns the mutex, want b, which came first", got.Owner)
		}
		time.Sleep(sec) // b does not call End, and its second lease ends
		if got := w.owner("m"); got.Owner != "c" {
			w.t.Errorf("%q owns the mutex, want c, since b did not call End", got.Owner)
		}
		time.Sleep(sec)
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			w.t.Errorf("End of b: %+v; want waiting", o)
		}
		if o := b.granted(); o.Owner != "b" {
			w.t.Errorf("b was granted %+v; want b as the owner", o)
		}
	})
}

func TestAWaiterThatWasWokenComesBeforeALaterOneWhoseGrantBecomesDurable(t *testing.T) {
	inBubbleOnDisk(t, func(w *world, g *gate) {
		w.acquire("m", "a", time.Hour, 0)
		b := w.block("m", "b", time.Hour, 0)
		w.block("m", "c", time.Hour, 0)
		w.release("m", "a") // the grant of b is durable, so b's connection is woken
		g.set(false)
		for range 2 { // b and then c lose the mutex before their connections run
			if _, _, err := w.e.Break(w.t.Context(), "m", ""); err != nil {
				w.t.Fatal(err)
			}
		}
		g.set(true) // the grant that c missed becomes durable
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			w.t.Errorf("End of b: %+v; want waiting", o)
		}
		if got := w.owner("m"); got.Owner != "b" {
			w.t.Errorf("%q owns the mutex, want b, which came first", got.Owner)
		}
	})
}

func TestAnAbsentWaiterGetsOneOfferHoweverOftenTheDiskHangs(t *testing.T) {
	inBubbleOnDisk(t, func(w *world, g *gate) {
		w.acquire("m", "a", 10*sec, 0)
		b := w.block("m", "b", 3*sec, 0)
		g.set(false)
		time.Sleep(20 * sec) // while the disk hangs, b is granted the mutex and its lease ends
		for hang, want := range []string{"b", "", ""} {
			o, _, err := w.e.Acquire(w.t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: 10 * sec})
			if err != nil || o.Status != simba.StatusAcquired {
				w.t.Fatalf("ACQUIRE of x while the disk hangs: %+v, %v; want acquired", o, err)
			}
			g.set(true) // the grant that b missed becomes durable
			g.set(false)
			time.Sleep(11 * sec) // the lease of x ends
			if got, _, err := w.e.Owner(w.t.Context(), "m"); err != nil || got.Owner != want {
				w.t.Errorf("hang %d: Owner returned %q, %v; want %q", hang, got.Owner, err, want)
			}
			time.Sleep(11 * sec)
		}
		g.set(true)
		if o := b.end(simba.EndWoken); o.Status != simba.StatusWaiting {
			w.t.Errorf("End of b: %+v; want waiting", o)
		}
		if o := b.granted(); o.Owner != "b" {
			w.t.Errorf("b was granted %+v; want b as the owner", o)
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
			w.t.Errorf("End of b after its release: %+v; want timeout", o)
		}
	})
}

func TestAWaitIsSettledUnlessOthersAreToldOfIt(t *testing.T) {
	inBubbleOnDisk(t, func(w *world, g *gate) {
		w.acquire("m", "a", time.Hour, 0)
		b := &blocked{w: w, woken: make(chan struct{}, 1)}
		o, ticket, err := w.e.Acquire(w.t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: sec, Waiter: b})
		if o.Status != simba.StatusWaiting || o.Settled || err != nil {
			t.Errorf("a queue entry is settled before its notice is sent: %+v, %v", o, err)
		}
		w.release("m", "a")
		if o, err := ticket.End(simba.EndWoken); o.Status != simba.StatusAcquired || !o.Settled || err != nil {
			t.Errorf("a committed grant is %+v, %v, want one that is settled", o, err)
		}
	})
}
