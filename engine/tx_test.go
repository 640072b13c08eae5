package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// commit runs a transaction that must not conflict.
func (w *world) commit(do func(tx simba.Tx)) {
	w.t.Helper()
	tx := w.e.begin()
	defer tx.end()
	do(tx)
	w.mustCommit(tx.commit())
}

func (w *world) lock(key string) (l simba.Lock) {
	w.t.Helper()
	w.commit(func(tx simba.Tx) { l = tx.Lock(key) })
	return l
}

func conflicts(t *testing.T, tx *tx) {
	t.Helper()
	if _, err := tx.commit(); !errors.Is(err, simba.ErrConflict) {
		t.Errorf("committed: %v", err)
	}
}

func str(owner string, ttl time.Duration) simba.Lock { return simba.Lock{Owner: owner, TTL: ttl} }

// inBubble runs a test in fake time.
func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		test(w)
		w.audit()
	})
}

func TestAKeyThatIsTakenIsATenure(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commit(func(tx simba.Tx) {
			if tx.Lock("m").Exists() || !tx.Open("m", "a") {
				w.t.Error("it is not free")
			}
			tx.Take("m", str("a", 10*sec))
			if l := tx.Lock("m"); l.Owner != "a" || l.TTL != 10*sec || tx.Open("m", "b") {
				w.t.Errorf("it does not see what it has taken: %+v", l)
			}
			if w.owner("m").Token != 0 {
				w.t.Error("others see it before the commit")
			}
		})
		o := w.owner("m")
		if o.Owner != "a" || o.Token == 0 || o.TTL != 10*sec || o.Transition != 10*sec {
			w.t.Errorf("%+v", o)
		}
		l := w.lock("m")
		if l.Token != o.Token || l.EndsAt != o.TransitionAt {
			w.t.Errorf("%+v of %+v", l, o)
		}
		if got := w.recorder.published(simba.MutexChannel("m")); !slices.Equal(got, []string{"acquired@@a"}) {
			w.t.Errorf("notices %q", got)
		}
		if o := w.acquire("m", "b", sec, 0); o.Status != simba.StatusQueued {
			w.t.Errorf("b got %+v", o)
		}
		time.Sleep(10 * sec)
		if w.lock("m").Exists() {
			w.t.Error("it did not end")
		}
	})
}

func TestOfTwoTransactionsThatReadAFreeKeyOneTakesIt(t *testing.T) {
	inBubble(t, func(w *world) {
		one, two := w.e.begin(), w.e.begin()
		for i, tx := range []*tx{one, two} {
			if !tx.Lock("m").Exists() {
				tx.Take("m", str(fmt.Sprint("c", i), sec))
			}
		}
		w.mustCommit(one.commit())
		conflicts(w.t, two)
		if o := w.owner("m"); o.Owner != "c0" {
			w.t.Errorf("%+v", o)
		}
	})
}

func TestReadValuesMustBeCurrentAtTheCommit(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"renewed":  func(w *world) { w.guard("m", "a", sec, 0, 0) },
		"released": func(w *world) { w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"}) },
		"released, taken": func(w *world) {
			w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
			w.acquire("m", "a", 5*sec, 0)
		},
		"expired":          func(w *world) { time.Sleep(5 * sec) },
		"another is taken": func(w *world) { w.acquire("free", "x", sec, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.acquire("m", "a", 5*sec, 0)
				tx := w.e.begin()
				tx.Lock("m")
				tx.Lock("free")
				tx.Take("new", str("x", simba.Endless))
				change(w)
				conflicts(w.t, tx)
				if w.lock("new").Exists() {
					w.t.Error("half of it is done")
				}
			})
		})
	}
}

func TestAWatchedKeyMustNotChangeAtAll(t *testing.T) {
	for name, test := range map[string]struct {
		queue  bool
		change func(w *world)
		fails  bool
	}{
		"nothing": {false, func(w *world) { w.lock("m") }, false},
		"taken and released": {false, func(w *world) {
			w.acquire("m", "a", sec, 0)
			w.release(simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		}, true},
		"taken and expired":  {false, func(w *world) { w.acquire("m", "a", sec, 0); time.Sleep(sec) }, true},
		"someone waits":      {false, func(w *world) { w.commit(func(tx simba.Tx) { tx.Enqueue("m", "b", 1) }) }, false},
		"someone has waited": {true, func(w *world) { w.commit(func(tx simba.Tx) { tx.Enqueue("m", "b", 1) }); time.Sleep(testGrace) }, true},
		"another is taken":   {false, func(w *world) { w.acquire("other", "a", sec, 0) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				version := w.e.Watch("m", test.queue)
				before, tx := w.e.begin(), w.e.begin()
				defer before.end()
				defer tx.end()
				if !before.Unchanged("m", test.queue, version) {
					w.t.Error("it has changed at once")
				}
				before.Take("x", str("y", sec))
				test.change(w)
				if tx.Unchanged("m", test.queue, version) == test.fails {
					w.t.Errorf("unchanged: %t", test.fails)
				}
				if _, err := before.commit(); errors.Is(err, simba.ErrConflict) != test.fails {
					w.t.Errorf("committed: %v", err)
				}
				w.e.Unwatch("m")
			})
		})
	}
}

func TestAQueueThatWasNotReadMayChange(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 5*sec, 0)
		tx, reader := w.e.begin(), w.e.begin()
		tx.Lock("m")
		tx.Change("m", str("a", 9*sec), true)
		reader.Queue("m")
		reader.Take("x", str("y", sec))
		w.acquire("m", "b", sec, 0)
		conflicts(w.t, reader)
		w.mustCommit(tx.commit())
		if l := w.lock("m"); l.TTL != 9*sec {
			w.t.Errorf("%+v", l)
		}
	})
}

func TestNothingStaysWatched(t *testing.T) {
	inBubble(t, func(w *world) {
		lock, queue := w.e.Watch("m", false), w.e.Watch("n", true)
		for range 2 { // a tx is used again
			_, err := w.e.Update(func(tx simba.Tx) error {
				if !tx.Unchanged("m", false, lock) || !tx.Unchanged("n", true, queue) {
					w.t.Error("they have changed")
				}
				tx.NextToken("o")
				return nil
			})
			if err != nil {
				w.t.Error(err)
			}
		}
		w.e.Unwatch("m")
		w.e.Unwatch("n")
		w.e.Unwatch("never watched")
		for i := range w.e.shards {
			if n := len(w.e.shards[i].watched); n != 0 {
				w.t.Errorf("%d are watched", n)
			}
		}
	})
}

func TestDroppingAKeyHandsTheMutexOff(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commit(func(tx simba.Tx) { tx.Take("m", str("a", simba.Endless)) })
		b := w.block("m", "b", 3*sec, sec)
		w.commit(func(tx simba.Tx) { tx.Drop("m") })
		if o := b.granted(); o.Owner != "b" || o.Transition != 4*sec {
			w.t.Errorf("%+v", o)
		}
		if got, want := w.history("m"), []string{"acquired a", "queued b", "released a", "acquired b"}; !slices.Equal(got, want) {
			w.t.Errorf("%q", got)
		}
	})
}

func TestATransactionThatTakesWhatItDroppedGoesBeforeTheWaiters(t *testing.T) {
	inBubble(t, func(w *world) {
		first := w.acquire("m", "a", 9*sec, 0)
		b := w.block("m", "b", 3*sec, 0)
		w.commit(func(tx simba.Tx) {
			tx.Drop("m")
			tx.Take("m", str("c", sec))
		})
		if o := w.owner("m"); b.isWoken() || o.Owner != "c" || o.Token <= first.Token {
			w.t.Errorf("%+v", o)
		}
		time.Sleep(sec)
		b.granted()
	})
}

func TestOverwritingBreaksTheTenure(t *testing.T) {
	inBubble(t, func(w *world) {
		first := w.acquire("m", "a", 9*sec, 0)
		w.commit(func(tx simba.Tx) { tx.Take("m", str("b", sec)) })
		if o := w.owner("m"); o.Owner != "b" || o.Token <= first.Token {
			w.t.Errorf("%+v", o)
		}
		if got, want := w.history("m"), []string{"acquired a", "broken a", "acquired b"}; !slices.Equal(got, want) {
			w.t.Errorf("%q", got)
		}
	})
}

func TestAChangeKeepsTheTenure(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commit(func(tx simba.Tx) {
			tx.Take("h", simba.Lock{Owner: "f", TTL: sec, Fields: []simba.Field{{Name: "f", Value: "1"}}})
		})
		before := w.lock("h")
		w.commit(func(tx simba.Tx) {
			l := tx.Lock("h")
			l.Fields = append(slices.Clone(l.Fields), simba.Field{Name: "g", Value: "2"})
			tx.Change("h", l, false)
			if l := tx.Lock("h"); l.TTL != sec || len(l.Fields) != 2 {
				w.t.Errorf("%+v", l)
			}
		})
		if l := w.lock("h"); l.Token != before.Token || len(l.Fields) != 2 || l.EndsAt != before.EndsAt {
			w.t.Errorf("%+v after %+v", l, before)
		}
		w.commit(func(tx simba.Tx) { tx.Change("h", simba.Lock{Owner: "f", TTL: simba.Endless}, true) })
		if l := w.lock("h"); l.Token != before.Token || l.Fields != nil || l.TTL != simba.Endless || l.EndsAt != 0 {
			w.t.Errorf("%+v", l)
		}
	})
}

func TestAKeyThatIsChangedAgainAndAgainIsChangedOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commit(func(tx simba.Tx) { tx.Take("m", str("a", sec)) })
		before := w.lock("m")
		for _, c := range []struct {
			what    string
			changes []op
			want    simba.Lock
		}{
			{"the last value and lease", []op{{lock: str("b", 2*sec), renew: true}, {lock: str("c", 3*sec), renew: true}}, str("c", 3*sec)},
			{"the last value, the only lease", []op{{lock: str("d", 4*sec), renew: true}, {lock: str("e", 9*sec)}}, str("e", 4*sec)},
			{"a lease after a value", []op{{lock: str("f", 9*sec)}, {lock: str("g", 5*sec), renew: true}}, str("g", 5*sec)},
			{"values only", []op{{lock: str("h", 9*sec)}, {lock: str("i", 8*sec)}}, str("i", 5*sec)},
			{"an end after none", []op{{lock: str("j", simba.Endless), renew: true}, {lock: str("j", 6*sec), renew: true}}, str("j", 6*sec)},
			{"no end", []op{{lock: str("k", 6*sec), renew: true}, {lock: str("k", simba.Endless), renew: true}, {lock: str("l", sec)}}, str("l", simba.Endless)},
		} {
			w.commit(func(t simba.Tx) {
				for _, o := range c.changes {
					t.Change("m", o.lock, o.renew)
				}
				if n := len(t.(*tx).first.work); n != 1 {
					w.t.Errorf("%s: %d changes", c.what, n)
				}
				if l := t.Lock("m"); l.Owner != c.want.Owner || l.TTL != c.want.TTL {
					w.t.Errorf("%s: it sees %+v, want %+v", c.what, l, c.want)
				}
			})
			if l := w.lock("m"); l.Owner != c.want.Owner || l.TTL != c.want.TTL || l.Token != before.Token {
				w.t.Errorf("%s: %+v, want %+v of tenure %d", c.what, l, c.want, before.Token)
			}
		}
		w.commit(func(tx simba.Tx) {
			tx.Change("m", str("n", sec), true)
			tx.Take("m", str("o", sec))
			tx.Change("m", str("p", 7*sec), true)
		})
		if l := w.lock("m"); l.Owner != "p" || l.TTL != 7*sec || l.Token == before.Token {
			w.t.Errorf("a change before and after a tenure's begin: %+v", l)
		}
	})
}

func TestALeaseMayBeLongOrWithoutEnd(t *testing.T) {
	inBubble(t, func(w *world) {
		const year = 365 * 24 * time.Hour
		w.commit(func(tx simba.Tx) {
			tx.Take("long", str("a", 2*year))
			tx.Take("endless", str("", simba.Endless))
		})
		time.Sleep(2*year - 1)
		if l := w.lock("long"); l.TTL != time.Millisecond {
			w.t.Errorf("%+v", l)
		}
		time.Sleep(time.Nanosecond)
		if w.lock("long").Exists() || !w.lock("endless").Exists() {
			w.t.Error("the wrong one has ended")
		}
		if o := w.owner("endless"); o.Transition != simba.MaxTTL || o.TransitionAt != o.Now+simba.MaxTTL.Milliseconds() {
			w.t.Errorf("%+v", o)
		}
		if o := w.acquire("endless", "b", sec, 0); o.Transition != simba.MaxTTL {
			w.t.Errorf("b got %+v", o)
		}
		time.Sleep(longestLapse + testGrace - 1)
		if got := w.queue("endless"); !slices.Equal(got, []string{"b"}) {
			w.t.Errorf("queue %q", got)
		}
		time.Sleep(time.Nanosecond)
		if got := w.queue("endless"); len(got) != 0 {
			w.t.Errorf("nobody has heard of %q", got)
		}
		w.commit(func(tx simba.Tx) { tx.Change("endless", simba.Lock{EndsAt: tx.Now().UnixMilli() + 1500}, true) })
		time.Sleep(1500 * time.Millisecond)
		if w.lock("endless").Exists() {
			w.t.Error("it did not end when it should")
		}
	})
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
				w.t.Error(got)
			}
		})
		if got := strings.Join(w.queue("m"), " "); got != "zz aa zz2 moved native later" {
			w.t.Error(got)
		}
		w.commit(func(tx simba.Tx) {
			tx.Dequeue("m", "zz")
			tx.Dequeue("m", "nobody")
			tx.Dequeue("m", "moved")
			tx.Enqueue("m", "moved", 0)
		})
		if got := strings.Join(w.queue("m"), " "); got != "aa zz2 moved native later" {
			w.t.Error(got)
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

// A script that releases as Simba's does: it deletes the lock, takes the first out of the queue
// and tells it so itself.
func TestAWaiterDequeuedFromAFreeMutexGetsTheReservation(t *testing.T) {
	release := func(w *world, next string) {
		w.commit(func(tx simba.Tx) {
			tx.Drop("m")
			if got, _, _ := strings.Cut(contenders(tx.Queue("m")), " "); got != next {
				w.t.Errorf("%s is the first", got)
			}
			tx.Dequeue("m", next)
			tx.Publish(simba.ContenderChannel("m", next), "released@@a")
		})
	}
	t.Run("a blocked one is granted it", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			b := w.block("m", "b", sec, 0)
			w.listen("m", "c")
			w.acquire("m", "c", sec, 0)
			release(w, "b")
			b.granted()
			if got := w.reservations("m", "c"); len(got) != 0 {
				w.t.Errorf("c got the notices %q", got)
			}
		})
	})
	t.Run("for a polling one it is reserved, with one notice", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			w.listen("m", "b")
			w.acquire("m", "b", sec, 0)
			c := w.block("m", "c", sec, 0)
			release(w, "b")
			if got := w.reservations("m", "b"); !slices.Equal(got, []string{"released@@a"}) {
				w.t.Errorf("b got the notices %q", got)
			}
			w.commit(func(tx simba.Tx) {
				if tx.Lock("m").Exists() || !tx.Open("m", "b") || tx.Open("m", "x") || !tx.Open("m", "b") {
					w.t.Error("it is not kept for b")
				}
				if l := tx.Lock("m"); l.Owner != "b" || l.TTL != testWindow {
					w.t.Errorf("x, which was refused, sees %+v", l)
				}
			})
			time.Sleep(testWindow)
			c.granted()
		})
	})
	t.Run("a waiter with a reservation keeps it", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			w.listen("m", "b")
			w.acquire("m", "b", sec, 0)
			c := w.block("m", "c", sec, 0)
			w.commit(func(tx simba.Tx) { tx.Drop("m") })
			w.commit(func(tx simba.Tx) { tx.Dequeue("m", "b") })
			if o := w.acquire("m", "b", sec, 0); o.Status != simba.StatusAcquired {
				w.t.Errorf("%+v", o)
			}
			time.Sleep(sec)
			c.granted()
		})
	})
	t.Run("one that nobody can reach is passed over", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			w.acquire("m", "b", sec, 0)
			c := w.block("m", "c", sec, 0)
			release(w, "b")
			c.granted()
		})
	})
	t.Run("of a mutex that is held it only leaves the queue", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.acquire("m", "a", 9*sec, 0)
			b := w.block("m", "b", sec, 0)
			w.commit(func(tx simba.Tx) { tx.Dequeue("m", "b") })
			if o := b.end(simba.EndWoken); o.Status != simba.StatusTimeout || o.Owner != "a" {
				w.t.Errorf("%+v", o)
			}
		})
	})
}

func TestDuringTheRecoveryDelayNoKeyIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Delay: 5 * sec})
		tx := w.e.begin()
		if tx.Open("m", "a") {
			t.Error("it is open")
		}
		tx.Take("m", str("a", sec))
		if _, err := tx.commit(); !errors.Is(err, simba.ErrRecovering) {
			t.Errorf("committed: %v", err)
		}
		time.Sleep(5 * sec)
		w.commit(func(tx simba.Tx) { tx.Take("m", str("a", sec)) })
	})
}

func TestNoPartOfATransactionIsShownBeforeAllOfItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWorldOn(t, g, Recovery{})
		tx := w.e.begin()
		tx.Take("a", str("x", sec))
		tx.Take("b", str("x", sec))
		tx.Publish("news", "done")
		seq, err := tx.commit()
		if err != nil {
			t.Fatal(err)
		}
		committed := make(chan struct{})
		go func() {
			defer close(committed)
			w.mustCommit(seq, nil)
		}()
		synctest.Wait()
		if heard := w.recorder.published("news"); len(heard) != 0 || len(w.recorder.published(simba.MutexChannel("a"))) != 0 {
			t.Errorf("published %q", heard)
		}
		g.set(true)
		<-committed
		if got := w.recorder.published("news"); !slices.Equal(got, []string{"done"}) {
			t.Errorf("news %q", got)
		}
	})
}

func TestATransactionBlocksOthersForABoundedTime(t *testing.T) {
	inBubble(t, func(w *world) {
		for name, fill := range map[string]func(tx simba.Tx, i int){
			"keys":     func(tx simba.Tx, i int) { tx.Take(fmt.Sprint("k", i), str("a", sec)) },
			"messages": func(tx simba.Tx, i int) { tx.Publish("news", "x") },
		} {
			for _, n := range []int{simba.MaxTxKeys, simba.MaxTxKeys + 1} {
				tx := w.e.begin()
				for i := range n {
					fill(tx, i)
				}
				seq, err := tx.commit()
				if errors.Is(err, simba.ErrTooLarge) != (n > simba.MaxTxKeys) {
					w.t.Errorf("%d %s: %v", n, name, err)
				}
				tx.end()
				w.mustCommit(seq, nil)
			}
		}
		if n := w.e.Stats().Held; n != simba.MaxTxKeys {
			w.t.Errorf("%d are held", n)
		}
	})
}

func TestATransactionThatIsTooLargeGrowsNoMore(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commit(func(tx simba.Tx) {
			tx.Take("held", str("a", sec))
			tx.Enqueue("held", "b", 1)
		})
		for range 2 { // a tx is used again
			tx := w.e.begin()
			for i := range 2 * simba.MaxTxKeys {
				tx.Unchanged(fmt.Sprint("w", i), false, 0)
				tx.Lock(fmt.Sprint("k", i))
			}
			if n := len(tx.keys); n != simba.MaxTxKeys {
				w.t.Errorf("it remembers %d keys", n)
			}
			if l, places := tx.Lock("held"), tx.Queue("held"); !tx.TooLarge() || l.Exists() || len(places) > 0 {
				w.t.Errorf("it goes on reading: %v, %v", l, places)
			}
			if _, err := tx.commit(); !errors.Is(err, simba.ErrTooLarge) {
				w.t.Error(err)
			}
			tx.end()
			for i := range w.e.shards {
				if n := len(w.e.shards[i].watched); n != 0 {
					w.t.Fatalf("shard %d has %d watches left", i, n)
				}
			}
		}
	})
}

func TestDiscardKeepsTheReadsAlone(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commit(func(tx simba.Tx) {
			tx.Take("m", str("a", sec))
			tx.Enqueue("m", "b", 1)
			tx.Publish("news", "x")
			tx.Discard()
			if l := tx.Lock("m"); l.Exists() || len(tx.Queue("m")) != 0 {
				w.t.Errorf("%+v", l)
			}
		})
		if w.lock("m").Exists() || len(w.recorder.published("news")) != 0 {
			w.t.Error("something is left")
		}
		tx := w.e.begin()
		tx.Lock("m")
		tx.Lock("n")
		tx.Discard()
		w.acquire("m", "a", sec, 0)
		conflicts(w.t, tx)
	})
}

func TestChangesSendKeyspaceNotifications(t *testing.T) {
	inBubble(t, func(w *world) {
		w.e.SetKeyEvents(simba.KeyEventsByKey | simba.KeyEventsByEvent | simba.KeyEventGeneric | simba.KeyEventString | simba.KeyEventExpired)
		w.recorder.subscribe("__keyspace@0__:m") // anyone, so that notices are sent at all
		w.commit(func(tx simba.Tx) { tx.Take("m", str("a", simba.Endless)) })
		w.commit(func(tx simba.Tx) { tx.Take("m", str("b", sec)) })
		w.guard("m", "b", 2*sec, 0, 0)
		w.commit(func(tx simba.Tx) { tx.Change("m", str("c", 0), false) })
		w.commit(func(tx simba.Tx) { tx.Drop("m") })
		w.acquire("m", "d", sec, 0)
		time.Sleep(sec)
		synctest.Wait() // the timer tells it
		want := []string{"set", "set", "expire", "expire", "set", "del", "set", "expire", "expired"}
		for _, name := range []string{"m", "simba:{m}"} {
			if got := w.recorder.published("__keyspace@0__:" + name); !slices.Equal(got, want) {
				w.t.Errorf("%s: %q", name, got)
			}
		}
		if got := w.recorder.published("__keyevent@0__:expired"); !slices.Equal(got, []string{"m", "simba:{m}"}) {
			w.t.Errorf("%q", got)
		}
	})
}

// Transactions that move all keys together, and others that read them, on many processors.
func TestTransactionsAreSerializable(t *testing.T) {
	e, err := New(Config{Clock: NewClock(0)}, Memory(), Recovery{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	keys := []string{"a", "b", "c", "d"}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 300 {
				for {
					var same bool
					_, err := e.Update(func(tx simba.Tx) error {
						first := tx.Lock(keys[(i+n)%4]).Owner
						same = true
						for _, k := range keys {
							same = same && tx.Lock(k).Owner == first
							tx.Take(k, str(fmt.Sprint(i, "-", n), simba.Endless))
						}
						return nil
					})
					if err == nil {
						if !same {
							t.Error("it has read half of another's changes")
						}
						break
					}
					if !errors.Is(err, simba.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if n := e.Stats().Held; n != 4 {
		t.Errorf("%d are held", n)
	}
}

func TestUpdateRunsAgainUntilItDoesNotConflict(t *testing.T) {
	interfere := func(w *world, i int) { // changes m
		if i%2 == 0 {
			w.acquire("m", "other", sec, 0)
		} else {
			w.release(simba.ReleaseRequest{Mutex: "m", Contender: "other"})
		}
	}
	failed := errors.New("failed")
	for _, test := range []struct {
		name      string
		conflicts int
		err, want error
		runs      int
	}{
		{"no conflict", 0, nil, nil, 1},
		{"three conflicts", 3, nil, nil, 4},
		{"an error depends on what was read", 3, failed, failed, 4},
		{"too many conflicts", maxAttempts, nil, simba.ErrConflict, maxAttempts},
		{"too many conflicts of an error", maxAttempts, failed, simba.ErrConflict, maxAttempts},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				runs := 0
				seq, err := w.e.Update(func(tx simba.Tx) error {
					runs++
					if tx.Lock("x").Exists() {
						w.t.Error("it sees changes of the run before")
					}
					tx.Lock("m")
					tx.Take("x", str("y", sec))
					if runs <= test.conflicts {
						interfere(w, runs-1)
					}
					return test.err
				})
				if !errors.Is(err, test.want) || runs != test.runs {
					w.t.Errorf("%d runs: %v", runs, err)
				}
				if w.lock("x").Exists() != (err == nil) {
					w.t.Errorf("x is taken: %t", err != nil)
				}
				if test.conflicts > 0 && seq == 0 {
					w.t.Error("the result rests on no change")
				}
			})
		})
	}
}
