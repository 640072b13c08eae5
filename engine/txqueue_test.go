package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestAnOwnerIsNotInItsOwnQueue(t *testing.T) {
	t.Run("a script enqueues the owner", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			w.commit(func(tx simba.Tx) { tx.Enqueue("m", "a", 1) })
			if got := w.queue("m"); len(got) != 0 {
				w.t.Errorf("queue %q, want nobody", got)
			}
		})
	})
	t.Run("a waiter that becomes the owner is woken", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.commit(func(tx simba.Tx) { tx.Take("m", str("1", 9*sec)) })
			two := w.block("m", "2", sec, 0)
			w.commit(func(tx simba.Tx) { tx.Change("m", str("2", 0), false) })
			if o := two.granted(); o.Owner != "2" || o.TTL != 9*sec {
				w.t.Errorf("2 was granted %+v; want 2 as the owner, with a TTL of 9 s", o)
			}
		})
	})
}

func TestEntriesOfTheSameScoreAreOfDifferentContenders(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 9*sec, 0)
		w.commit(func(tx simba.Tx) { tx.Enqueue("m", "polls", float64(time.Now().UnixMilli())/1000) })
		blocks := w.block("m", "blocks", sec, 0)
		w.commit(func(tx simba.Tx) { tx.Dequeue("m", "polls") })
		if got := w.queue("m"); !slices.Equal(got, []string{"blocks"}) {
			w.t.Errorf("queue %q, want blocks alone", got)
		}
		w.release("m", "a")
		blocks.granted()
	})
}

func TestEntriesOfTheSameScoreKeepTheirOrderAfterOthersLeave(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 9*sec, 0)
		for _, c := range []string{"c1", "c2"} {
			w.commit(func(tx simba.Tx) { tx.Enqueue("m", c, 100) })
		}
		w.commit(func(tx simba.Tx) { tx.Dequeue("m", "c1") })
		w.commit(func(tx simba.Tx) {
			tx.Enqueue("m", "c3", 100)
			if got := contenders(tx.Queue("m")); got != "c2 c3" {
				w.t.Errorf("queue in the transaction %q, want c2 c3", got)
			}
		})
		if got := strings.Join(w.queue("m"), " "); got != "c2 c3" {
			w.t.Errorf("queue %q, want c2 c3", got)
		}
	})
}

func TestAMoveInTheQueueIsAChange(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 9*sec, 0)
		w.commit(func(tx simba.Tx) {
			tx.Enqueue("m", "b", 1)
			tx.Enqueue("m", "c", 2)
		})
		watching, reading := w.e.beginTx(), w.e.beginTx()
		defer watching.end()
		defer reading.end()
		watching.Unchanged("m", true, 0)
		reading.Queue("m")
		reading.Take("x", str("y", sec))
		w.commit(func(tx simba.Tx) { tx.Enqueue("m", "b", 3) })
		conflicts(w.t, watching)
		conflicts(w.t, reading)
	})
}

func TestAReservationIsAChange(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 9*sec, 0)
		w.poll("m", "c", sec)
		w.recorder.unsubscribe(simba.ContenderChannel("m", "c"))
		w.release("m", "a")
		watching, taking := w.e.beginTx(), w.e.beginTx()
		defer watching.end()
		defer taking.end()
		watching.Unchanged("m", false, 0)
		if !taking.MayTake("m", "d") {
			w.t.Fatal("MayTake of a free mutex is false")
		}
		taking.Take("m", str("d", sec))
		w.recorder.subscribe(simba.ContenderChannel("m", "c"))
		w.commit(func(tx simba.Tx) { tx.Dequeue("m", "c") }) // c gets the reservation
		conflicts(w.t, taking)
		conflicts(w.t, watching)
	})
}

func TestAReadOfAKeyAndItsQueueIsOfOneInstant(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 9*sec, 0)
		w.acquire("m", "b", sec, 0)
		tx := w.e.beginTx()
		defer tx.end()
		tx.Lock("m")
		w.release("m", "b")
		w.release("m", "a")
		tx.Queue("m")
		conflicts(w.t, tx)
	})
}

// A crash must not undo a value that a client saw, or the new end of an endless lock. This holds in
// the durability async too.
func TestIrreversibleChangesAreForced(t *testing.T) {
	for name, test := range map[string]struct {
		before, after simba.Lock
		renew, forced bool
	}{
		"another value":               {str("1", sec), str("2", 0), false, true},
		"another field":               {str("1", sec), simba.Lock{Owner: "1", Fields: []simba.Field{{Name: "1", Value: "2"}}}, false, true},
		"an endless lock gets an end": {str("1", simba.Endless), str("1", sec), true, true},
		"a longer lease":              {str("1", sec), str("1", 2*sec), true, false},
		"the lock becomes endless":    {str("1", sec), str("1", simba.Endless), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			g.set(true)
			w := newWorldOn(t, g, Recovery{})
			w.commit(func(tx simba.Tx) { tx.Take("m", test.before) })
			w.commit(func(tx simba.Tx) { tx.Change("m", test.after, test.renew) })
			if got := g.changes[len(g.changes)-1].Forced; got != test.forced {
				t.Errorf("Forced of the change is %v, want %v", got, test.forced)
			}
		})
	}
}

func TestTheHistoryKeepsNoValues(t *testing.T) {
	w := newWorld(t, Recovery{})
	name, value := strings.Repeat("n", 1<<16), strings.Repeat("v", 1<<16)
	w.commit(func(tx simba.Tx) { tx.Take(name, str(value, sec)) })
	events, _, err := w.e.History(context.Background(), simba.HistoryRequest{Mutex: name[:simba.MaxMutexLen]})
	if err != nil || len(events) != 1 || len(events[0].Owner) != simba.MaxContenderLen {
		t.Errorf("History returned %d events, %v; want one with a cut owner", len(events), err)
	}
	if l := w.lock(name); l.Owner != value {
		t.Error("the lock has lost a part of its value")
	}
}

func TestTheQueueIsOrderedByScoreThenArrival(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 9*sec, 0)
		w.acquire("m", "native", sec, 0)
		now := w.queueScores("m")["native"]
		w.commit(func(tx simba.Tx) {
			tx.Enqueue("m", "later", now+1)
			tx.Enqueue("m", "zz", -1)
			tx.Enqueue("m", "aa", -1)
			tx.Enqueue("m", "zz2", -1)
			tx.Enqueue("m", "moved", -5)
			tx.Enqueue("m", "moved", 0)
			if got := contenders(tx.Queue("m")); got != "zz aa zz2 moved native later" {
				w.t.Errorf("queue in the transaction %q, want zz aa zz2 moved native later", got)
			}
		})
		if got := strings.Join(w.queue("m"), " "); got != "zz aa zz2 moved native later" {
			w.t.Errorf("queue %q, want zz aa zz2 moved native later", got)
		}
		w.commit(func(tx simba.Tx) {
			tx.Dequeue("m", "zz")
			tx.Dequeue("m", "nobody")
			tx.Dequeue("m", "moved")
			tx.Enqueue("m", "moved", 0)
		})
		if got := strings.Join(w.queue("m"), " "); got != "aa zz2 moved native later" {
			w.t.Errorf("queue %q, want aa zz2 moved native later", got)
		}
	})
}

func (w *world) queueScores(m string) map[string]float64 {
	scores := map[string]float64{}
	w.commit(func(tx simba.Tx) {
		for _, p := range tx.Queue(m) {
			scores[p.Contender] = p.Score
		}
	})
	return scores
}

func contenders(places []simba.QueueMember) string {
	var names []string
	for _, p := range places {
		names = append(names, p.Contender)
	}
	return strings.Join(names, " ")
}

// The transaction does what the release script of Simba on the JVM does. It deletes the lock,
// dequeues the first waiter and publishes a notice to this waiter.
func TestAWaiterDequeuedFromAFreeMutexGetsTheReservation(t *testing.T) {
	release := func(w *world, next string) {
		w.commit(func(tx simba.Tx) {
			tx.Drop("m")
			if got, _, _ := strings.Cut(contenders(tx.Queue("m")), " "); got != next {
				w.t.Errorf("%q is the first waiter, want %q", got, next)
			}
			tx.Dequeue("m", next)
			tx.Publish(simba.ContenderChannel("m", next), "released@@a")
		})
	}
	t.Run("a blocked waiter is granted the mutex", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			b := w.block("m", "b", sec, 0)
			w.poll("m", "c", sec)
			release(w, "b")
			b.granted()
			if got := w.offers("m", "c"); len(got) != 0 {
				w.t.Errorf("c got the notices %q, want none", got)
			}
		})
	})
	t.Run("a polling waiter gets the reservation and one notice", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			w.poll("m", "b", sec)
			c := w.block("m", "c", sec, 0)
			release(w, "b")
			if got := w.offers("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
				w.t.Errorf("b got the notices %q, want the release of a", got)
			}
			w.commit(func(tx simba.Tx) {
				if tx.Lock("m").Exists() || !tx.MayTake("m", "b") || tx.MayTake("m", "x") || !tx.MayTake("m", "b") {
					w.t.Error("Lock shows an owner, or MayTake is not true for b alone")
				}
				if l := tx.Lock("m"); l.Owner != "b" || l.TTL != testWindow {
					w.t.Errorf("lock %+v after MayTake of x, want b for the handoff window", l)
				}
			})
			time.Sleep(testWindow)
			c.granted()
		})
	})
	t.Run("a waiter with a reservation keeps it", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			w.poll("m", "b", sec)
			c := w.block("m", "c", sec, 0)
			w.commit(func(tx simba.Tx) { tx.Drop("m") })
			w.commit(func(tx simba.Tx) { tx.Dequeue("m", "b") })
			if o := w.acquire("m", "b", sec, 0); o.Status != simba.StatusAcquired {
				w.t.Errorf("ACQUIRE of b, which has the reservation: %+v; want acquired", o)
			}
			time.Sleep(sec)
			c.granted()
		})
	})
	t.Run("an unreachable waiter is skipped", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			w.acquire("m", "b", sec, 0)
			c := w.block("m", "c", sec, 0)
			release(w, "b")
			c.granted()
		})
	})
	t.Run("a waiter of an owned mutex only leaves the queue", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			b := w.block("m", "b", sec, 0)
			w.commit(func(tx simba.Tx) { tx.Dequeue("m", "b") })
			if o := b.end(simba.EndWoken); o.Status != simba.StatusTimeout || o.Owner != "a" {
				w.t.Errorf("End of b: %+v; want timeout with a as the owner", o)
			}
		})
	})
}

func TestATenureMayTakeOverTheLease(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 9*sec, sec)
		time.Sleep(2500 * time.Microsecond)
		before := w.lock("m")
		w.commit(func(tx simba.Tx) {
			tx.Take("m", str("b", simba.KeepTTL))
			if l := tx.Lock("m"); l.TTL != before.TTL || l.EndsAt != before.EndsAt {
				w.t.Errorf("the transaction sees lock %+v, want the end of %+v", l, before)
			}
		})
		if l := w.lock("m"); l.Owner != "b" || l.Token == before.Token || l.EndsAt != before.EndsAt || l.TTL != before.TTL {
			w.t.Errorf("lock %+v after the new tenure, %+v before; want b, a new token, and the same end", l, before)
		}
	})
}

func TestATakerIsNotInTheQueueAfterwards(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 9*sec, 0)
		w.acquire("m", "b", sec, 0)
		w.commit(func(tx simba.Tx) {
			tx.Take("m", str("b", sec))
			if got := contenders(tx.Queue("m")); got != "" {
				w.t.Errorf("queue in the transaction %q, want nobody", got)
			}
			if tx.MayTake("m", "c") {
				w.t.Error("MayTake is true for a key that the transaction has taken")
			}
		})
	})
}
