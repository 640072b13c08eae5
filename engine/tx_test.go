package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

// commit runs a transaction, which must not conflict.
func (w *world) commit(do func(tx simba.Tx)) {
	w.t.Helper()
	tx := w.e.beginTx()
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
		t.Errorf("commit returned %v, want ErrConflict", err)
	}
}

func str(owner string, ttl time.Duration) simba.Lock { return simba.Lock{Owner: owner, TTL: ttl} }

func TestReadValuesMustBeCurrentAtTheCommit(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"renewed":  func(w *world) { w.guard("m", "a", sec, 0, 0) },
		"released": func(w *world) { w.release("m", "a") },
		"released, taken": func(w *world) {
			w.release("m", "a")
			w.acquire("m", "a", 5*sec, 0)
		},
		"expired":              func(w *world) { time.Sleep(5 * sec) },
		"another key is taken": func(w *world) { w.acquire("free", "x", sec, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.acquire("m", "a", 5*sec, 0)
				tx := w.e.beginTx()
				tx.Lock("m")
				tx.Lock("free")
				tx.Take("new", str("x", simba.Endless))
				change(w)
				conflicts(w.t, tx)
				if w.lock("new").Exists() {
					w.t.Error("a part of the conflicting transaction was committed")
				}
			})
		})
	}
}

func TestAWatchedKeyMustNotChangeAtAll(t *testing.T) {
	for name, test := range map[string]struct {
		queue  bool // watch the queue of the mutex, not the lock
		change func(w *world)
		fails  bool // the commit conflicts
	}{
		"nothing": {false, func(w *world) { w.lock("m") }, false},
		"taken and released": {false, func(w *world) {
			w.acquire("m", "a", sec, 0)
			w.release("m", "a")
		}, true},
		"taken and expired":    {false, func(w *world) { w.acquire("m", "a", sec, 0); time.Sleep(sec) }, true},
		"someone waits":        {false, func(w *world) { w.commit(func(tx simba.Tx) { tx.Enqueue("m", "b", 1) }) }, false},
		"someone has waited":   {true, func(w *world) { w.commit(func(tx simba.Tx) { tx.Enqueue("m", "b", 1) }); time.Sleep(testGrace) }, true},
		"another key is taken": {false, func(w *world) { w.acquire("other", "a", sec, 0) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				version := w.e.Watch("m", test.queue)
				before, tx := w.e.beginTx(), w.e.beginTx()
				defer before.end()
				defer tx.end()
				if !before.Unchanged("m", test.queue, version) {
					w.t.Error("Unchanged is false before any change")
				}
				before.Take("x", str("y", sec))
				test.change(w)
				if tx.Unchanged("m", test.queue, version) == test.fails {
					w.t.Errorf("Unchanged is %t after the change, want %t", test.fails, !test.fails)
				}
				if _, err := before.commit(); errors.Is(err, simba.ErrConflict) != test.fails {
					w.t.Errorf("commit returned %v after the change, want a conflict: %t", err, test.fails)
				}
				w.e.Unwatch("m")
			})
		})
	}
}

func TestAQueueThatWasNotReadMayChange(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 5*sec, 0)
		tx, reader := w.e.beginTx(), w.e.beginTx()
		tx.Lock("m")
		tx.Change("m", str("a", 9*sec), true)
		reader.Queue("m")
		reader.Take("x", str("y", sec))
		w.acquire("m", "b", sec, 0)
		conflicts(w.t, reader)
		w.mustCommit(tx.commit())
		if l := w.lock("m"); l.TTL != 9*sec {
			w.t.Errorf("lock %+v, want 9 s", l)
		}
	})
}

func TestNothingStaysWatched(t *testing.T) {
	inBubble(t, func(w *world) {
		lock, queue := w.e.Watch("m", false), w.e.Watch("n", true)
		for range 2 { // the second run reuses the tx
			_, err := w.e.Update(func(tx simba.Tx) error {
				if !tx.Unchanged("m", false, lock) || !tx.Unchanged("n", true, queue) {
					w.t.Error("Unchanged is false although nothing has changed")
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
				w.t.Errorf("shard %d has %d watched mutexes, want 0", i, n)
			}
		}
	})
}
