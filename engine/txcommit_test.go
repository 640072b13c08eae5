package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestNoPartOfATransactionIsShownBeforeAllOfItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWorldOn(t, g, Recovery{})
		tx := w.e.beginTx()
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
			t.Errorf("messages before the fsync: %q, want none, and no notice of the mutex", heard)
		}
		g.set(true)
		<-committed
		if got := w.recorder.published("news"); !slices.Equal(got, []string{"done"}) {
			t.Errorf("messages on news after the fsync: %q, want done", got)
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
				tx := w.e.beginTx()
				for i := range n {
					fill(tx, i)
				}
				seq, err := tx.commit()
				if errors.Is(err, simba.ErrTooLarge) != (n > simba.MaxTxKeys) {
					w.t.Errorf("%d %s: commit returned %v, want ErrTooLarge: %t", n, name, err, n > simba.MaxTxKeys)
				}
				tx.end()
				w.mustCommit(seq, nil)
			}
		}
		if n := w.e.Stats().Held; n != simba.MaxTxKeys {
			w.t.Errorf("%d mutexes are owned, want %d", n, simba.MaxTxKeys)
		}
	})
}

func TestATransactionThatIsTooLargeGrowsNoMore(t *testing.T) {
	inBubble(t, func(w *world) {
		w.commit(func(tx simba.Tx) {
			tx.Take("held", str("a", sec))
			tx.Enqueue("held", "b", 1)
		})
		for range 2 { // the second run reuses the tx
			tx := w.e.beginTx()
			for i := range 2 * simba.MaxTxKeys {
				tx.Unchanged(fmt.Sprint("w", i), false, 0)
				tx.Lock(fmt.Sprint("k", i))
			}
			if n := len(tx.keys); n != simba.MaxTxKeys {
				w.t.Errorf("the transaction keeps %d keys, want %d", n, simba.MaxTxKeys)
			}
			if l, places := tx.Lock("held"), tx.Queue("held"); !tx.TooLarge() || l.Exists() || len(places) > 0 {
				w.t.Errorf("the transaction, which is too large, still reads lock %v and queue %v", l, places)
			}
			if _, err := tx.commit(); !errors.Is(err, simba.ErrTooLarge) {
				w.t.Error(err)
			}
			tx.end()
			for i := range w.e.shards {
				if n := len(w.e.shards[i].watched); n != 0 {
					w.t.Fatalf("shard %d has %d watched mutexes, want 0", i, n)
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
				w.t.Errorf("after Discard the transaction sees lock %+v, or a queue; want neither", l)
			}
		})
		if w.lock("m").Exists() || len(w.recorder.published("news")) != 0 {
			w.t.Error("a discarded change was committed")
		}
		tx := w.e.beginTx()
		tx.Lock("m")
		tx.Lock("n")
		tx.Discard()
		w.acquire("m", "a", sec, 0)
		conflicts(w.t, tx)
	})
}

// Each transaction reads the owners of all keys, and then gives all keys to another owner. If it
// saw two owners, another transaction was only half done.
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
							t.Error("a transaction has read only some changes of another transaction")
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
		t.Errorf("%d mutexes are held, want 4", n)
	}
}

func TestUpdateRunsAgainUntilItDoesNotConflict(t *testing.T) {
	interfere := func(w *world, i int) { // changes m
		if i%2 == 0 {
			w.acquire("m", "other", sec, 0)
		} else {
			w.release("m", "other")
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
		{"an error after three conflicts", 3, failed, failed, 4},
		{"too many conflicts", maxAttempts, nil, simba.ErrConflict, maxAttempts},
		{"an error, but too many conflicts", maxAttempts, failed, simba.ErrConflict, maxAttempts},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				runs := 0
				seq, err := w.e.Update(func(tx simba.Tx) error {
					runs++
					if tx.Lock("x").Exists() {
						w.t.Error("the transaction sees changes of its previous run")
					}
					tx.Lock("m")
					tx.Take("x", str("y", sec))
					if runs <= test.conflicts {
						interfere(w, runs-1)
					}
					return test.err
				})
				if !errors.Is(err, test.want) || runs != test.runs {
					w.t.Errorf("Update ran %d times and returned %v, want %d times and %v", runs, err, test.runs, test.want)
				}
				if w.lock("x").Exists() != (err == nil) {
					w.t.Errorf("x was taken: %t; want it taken only if Update succeeds", err != nil)
				}
				if test.conflicts > 0 && seq == 0 {
					w.t.Error("Update returned Seq 0")
				}
			})
		})
	}
}

func TestUpdateOneRunsOnceAlthoughOthersChangeTheMutex(t *testing.T) {
	e, err := New(Config{Clock: NewClock(1000)}, Memory(), Recovery{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	const workers, changes = 4, 500
	runs := 0 // the shard's lock protects it
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range changes {
				if _, err := e.UpdateOne("m", func(tx simba.Tx) error {
					runs++
					n, _ := strconv.Atoi(tx.Lock("m").Owner)
					if l := str(strconv.Itoa(n+1), simba.Endless); n == 0 {
						tx.Take("m", l)
					} else {
						tx.Change("m", l, false)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var l simba.Lock
	if _, err := e.UpdateOne("m", func(tx simba.Tx) error { l = tx.Lock("m"); return nil }); err != nil {
		t.Error(err)
	}
	if want := strconv.Itoa(workers * changes); runs != workers*changes || l.Owner != want {
		t.Errorf("%d runs, owner %q; want %s of both", runs, l.Owner, want)
	}
}

func TestUpdateOneThatFailsChangesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", sec, 0)
		drawn := uint64(0)
		failed := errors.New("failed")
		if _, err := w.e.UpdateOne("m", func(tx simba.Tx) error {
			drawn = tx.NextToken("m")
			tx.Take("m", str("b", sec))
			return failed
		}); err != failed {
			w.t.Errorf("UpdateOne returned %v, want the error of the function", err)
		}
		if o := w.owner("m"); o.Owner != "a" {
			w.t.Errorf("the owner is %q, want a", o.Owner)
		}
		w.release("m", "a")
		if o := w.acquire("m", "c", sec, 0); o.Token <= drawn {
			w.t.Errorf("the next token is %d, want more than the drawn %d", o.Token, drawn)
		}
	})
}

func TestATransactionCountsTheTenuresThatItEndsInOneShard(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		other := "n"
		for sh, _ := w.e.shard("m"); ; other += "n" {
			if x, _ := w.e.shard(other); x == sh {
				break
			}
		}
		w.release("m", "a") // the shard reuses this step with its list of tenure lengths
		w.acquire("m", "a", time.Hour, 0)
		w.acquire(other, "a", time.Hour, 0)
		time.Sleep(2 * sec)
		w.commit(func(tx simba.Tx) {
			tx.Drop("m")
			tx.Drop(other)
		})
		if got := w.e.Stats().TenureLengths; got.Count() != 3 || got.Micros != 4_000_000 {
			w.t.Errorf("TenureLengths has %d tenures with a sum of %d µs, want 3 tenures with a sum of 4 s", got.Count(), got.Micros)
		}
	})
}
