package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// refuse lets a script of Simba's ask in vain. It queues the contender if queues is set.
func (w *world) refuse(mutex, contender string, queues bool) {
	w.t.Helper()
	w.commit(func(tx simba.Tx) {
		if tx.MayTake(mutex, contender) {
			w.t.Fatalf("%s may take %s", contender, mutex)
		}
		tx.Refuse(mutex, contender)
		if queues {
			tx.Enqueue(mutex, contender, 1)
		}
	})
}

func TestAWaiterBehindADeafContenderIsWokenWhenThatMissesItsReservation(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 1500*time.Millisecond, 0)
		w.refuse("m", "deaf", true)
		c := w.block("m", "c", sec, 0)
		start := time.Now()
		w.release("m", "a")
		<-c.woken
		if took, want := time.Since(start), 1500*time.Millisecond+jitter; took != want {
			w.t.Errorf("c was granted the mutex after %v, want %v", took, want)
		}
		c.granted()
		if q := w.queue("m"); len(q) != 0 {
			w.t.Errorf("queue %v, want nobody", q)
		}
	})
}

func TestADeafContenderTakesTheMutexReservedForIt(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 1500*time.Millisecond, 0)
		w.refuse("m", "deaf", true)
		c := w.block("m", "c", sec, 0)
		time.Sleep(1500*time.Millisecond + jitter - 1) // the lease of a ends meanwhile
		w.commit(func(tx simba.Tx) {
			if !tx.MayTake("m", "deaf") {
				w.t.Fatal("the deaf contender may not take the mutex in its turn")
			}
			tx.Take("m", str("deaf", time.Hour))
		})
		synctest.Wait()
		if c.isWoken() {
			w.t.Error("c was woken, want the deaf contender to own the mutex")
		}
	})
}

func TestADeafContenderThatIsDueLaterIsPassedOverAndKeepsItsEntry(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.refuse("m", "deaf", true)
		c := w.block("m", "c", time.Hour, 0)
		w.release("m", "a")
		c.granted()
		if q := w.queue("m"); !slices.Equal(q, []string{"deaf"}) {
			w.t.Errorf("queue %v, want the deaf contender alone", q)
		}
	})
}

func TestAContenderThatSubscribesMeanwhileMayMissTheReservation(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 1500*time.Millisecond, 0)
		w.refuse("m", "b", true)
		c := w.block("m", "c", time.Hour, 0)
		w.release("m", "a")
		w.listen("m", "b")
		start := time.Now()
		<-c.woken
		if took := time.Since(start); took != testWindow {
			w.t.Errorf("c was granted the mutex after %v, want %v, the handoff window", took, testWindow)
		}
		c.granted()
		if q := w.queue("m"); !slices.Equal(q, []string{"b"}) {
			w.t.Errorf("queue %v, want b alone", q)
		}
	})
}

func TestEveryThirdTimeAFreeMutexIsOpenToOutsidersForAMoment(t *testing.T) {
	for _, expires := range []bool{false, true} {
		inBubble(t, func(w *world) {
			w.acquire("m", "a0", sec, 0)
			w.refuse("m", "outsider", false)
			names := []string{"a0", "a1", "a2", "a3", "a4"}
			for i, name := range names[:4] {
				next := w.block("m", names[i+1], sec, 0)
				if expires {
					time.Sleep(sec)
				} else {
					w.release("m", name)
				}
				start := time.Now()
				want := time.Duration(0)
				if i == 2 {
					want = 150 * time.Millisecond
					synctest.Wait()
					if o := w.acquire("m", "late", sec, 0); o.Status != simba.StatusQueued || o.Transition != want {
						w.t.Errorf("ACQUIRE of a mutex that is open to outsiders: %+v, want queued, and %v left", o, want)
					}
					w.release("m", "late")
					got := w.recorder.published(simba.MutexChannel("m"))
					if n := len(got); n == 0 || got[n-1] != "released@@a2" {
						w.t.Errorf("notices of the mutex: %q, want the release of a2 last", got)
					}
				}
				<-next.woken
				if took := time.Since(start); took != want {
					w.t.Errorf("tenure %d: the waiter was granted the mutex after %v, want %v", i, took, want)
				}
				next.granted()
			}
		})
	}
}

func TestAMutexWithoutWaitersIsOpenToOutsidersToo(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", sec, 0)
		w.refuse("m", "outsider", false)
		const open = 150 * time.Millisecond
		ask := simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: sec, NoQueue: true}
		for ended := 1; ended <= 9; ended++ {
			w.release("m", "a")
			time.Sleep(ms) // nobody waits meanwhile
			o := w.ask(ask)
			if ended%3 == 0 {
				if o.Status != simba.StatusBusy || o.Transition != open-ms {
					w.t.Errorf("ACQUIRE after %d tenures: %+v; want busy, and %v left", ended, o, open-ms)
				}
				time.Sleep(open)
				o = w.ask(ask)
			}
			if o.Status != simba.StatusAcquired {
				w.t.Fatalf("ACQUIRE after %d tenures: %+v; want acquired", ended, o)
			}
		}
		w.release("m", "a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := w.e.Stats().Mutexes; n != 0 {
			w.t.Errorf("%d mutexes are in memory a minute after the outsider asked, want 0", n)
		}
	})
}
