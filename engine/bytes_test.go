package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// heap returns the used bytes of the heap.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the first call only marks garbage
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBytesMatchTheHeap allows a difference of a third, because tables and lists grow by doubling.
func TestBytesMatchTheHeap(t *testing.T) {
	const n = 50_000
	long := strings.Repeat("x", 200)
	ask := func(e *Engine, mutex, contender string) {
		if _, _, err := e.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: time.Hour}); err != nil {
			t.Error(err)
		}
	}
	value := strings.Repeat("v", 1000)
	commit := func(e *Engine, work func(tx simba.Tx)) {
		tx := e.beginTx()
		defer tx.end()
		work(tx)
		if _, err := tx.commit(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name string
		fill func(e *Engine, i int)
	}{
		{"mutexes", func(e *Engine, i int) { ask(e, fmt.Sprint("mutex", i), fmt.Sprint("owner", i)) }},
		{"mutexes with long names", func(e *Engine, i int) { ask(e, fmt.Sprint(long, i), long) }},
		{"a queue", func(e *Engine, i int) { ask(e, "m", fmt.Sprint("contender", i)) }},
		{"short queues", func(e *Engine, i int) { ask(e, fmt.Sprint("mutex", i/2), fmt.Sprint("contender", i)) }},
		{"hashes", func(e *Engine, i int) {
			name := fmt.Sprint("field", i)
			hash := simba.Lock{Owner: name, Fields: []simba.Field{{Name: name, Value: "1"}}, TTL: time.Hour}
			commit(e, func(tx simba.Tx) { tx.Take(fmt.Sprint("hash", i), hash) })
		}},
		{"queues of keys that had long values", func(e *Engine, i int) {
			key := fmt.Sprint("key", i)
			commit(e, func(tx simba.Tx) { tx.Take(key, simba.Lock{Owner: value, TTL: time.Hour}) })
			commit(e, func(tx simba.Tx) { tx.Drop(key); tx.Enqueue(key, "b", 1) })
		}},
		{"empty values of keys that had long ones", func(e *Engine, i int) {
			key := fmt.Sprint("key", i)
			commit(e, func(tx simba.Tx) { tx.Take(key, simba.Lock{Owner: value, TTL: time.Hour}) })
			commit(e, func(tx simba.Tx) { tx.Change(key, simba.Lock{TTL: time.Hour}, true) })
		}},
		{"tenures that were handed on", func(e *Engine, i int) {
			mutex, contender := fmt.Sprint(long, i), fmt.Sprint("b", i)
			ask(e, mutex, "a")
			_, ticket, err := e.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: time.Hour, Waiter: silent{}})
			if err != nil || ticket == nil {
				t.Fatalf("Acquire of a waiter returned ticket %v, %v", ticket, err)
			}
			if _, seq, err := e.Release(context.Background(), simba.ReleaseRequest{Mutex: mutex, Contender: "a"}); err != nil || e.Commit(seq) != nil {
				t.Fatal(err)
			}
			if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
				t.Fatalf("End returned %+v, %v; want acquired", o, err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := New(Config{Clock: NewClock(1000), QueueGrace: time.Hour, HistoryLen: 1}, Memory(), Recovery{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Stop()
			before := heap()
			for i := range n {
				c.fill(e, i)
			}
			counted, held := e.Bytes(), heap()-before
			t.Logf("Bytes returned %d, the heap grew by %d: %d and %d for each call of fill", counted, held, counted/n, held/n)
			if counted < held*3/4 || counted > held*4/3 {
				t.Errorf("Bytes returned %d, the heap grew by %d; want a difference of at most a third", counted, held)
			}
			runtime.KeepAlive(e)
		})
	}
}

// silent is a waiter that ignores its wake-up.
type silent struct{}

func (silent) Wake() {}

// TestAHugeQueueReleasesItsMemory removes all waiters except one, one by one or in one step.
func TestAHugeQueueReleasesItsMemory(t *testing.T) {
	const n, spare = 20_000, 128 << 10
	name := func(i int) string { return fmt.Sprint("c", i) }
	for _, c := range []struct {
		name  string
		leave func(w *world)
	}{
		{"they leave, from the first to the last", func(w *world) {
			for i := range n {
				w.release("m", name(i))
			}
		}},
		{"they leave, from the last to the first", func(w *world) {
			for i := range n {
				w.release("m", name(n-1-i))
			}
		}},
		{"they lapse at one instant", func(*world) { time.Sleep(2 * time.Hour); synctest.Wait() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.e.sequencer.history.Limit = 0
				w.e.SetQueueGrace(time.Minute)
				w.acquire("m", "owner", simba.MaxTTL, 0)
				w.block("m", "stays", simba.MaxTTL, 0)
				before, counted := heap(), w.e.Bytes()
				// The waiters see this lease, and lapse a minute after its end.
				w.acquire("m", "owner", time.Hour, 0)
				for i := range n {
					w.listen("m", name(i))
					w.acquire("m", name(i), sec, 0)
				}
				w.acquire("m", "owner", simba.MaxTTL, 0)
				w.recorder.forget()
				c.leave(w)
				w.recorder.forget()
				if kept := heap() - before; kept > spare {
					w.t.Errorf("the heap keeps %d KiB after %d waiters have left, want at most %d KiB", kept>>10, n, spare>>10)
				}
				if now := w.e.Bytes(); now != counted {
					w.t.Errorf("Bytes returned %d after the waiters have left, %d before they came", now, counted)
				}
			})
		})
	}
}

func TestAStepKeepsNoNames(t *testing.T) {
	const length = 64 << 10
	for _, n := range []int{8, 60} { // a step reuses short lists of effects, but not long ones
		inBubble(t, func(w *world) {
			w.e.sequencer.history.Limit = 0
			before := heap()
			tx := w.e.beginTx()
			for i := range n {
				tx.Enqueue("m", fmt.Sprint(i, strings.Repeat("x", length)), 1)
			}
			w.mustCommit(tx.commit())
			tx.end()
			if counted := w.e.Bytes(); counted < int64(n*length) {
				w.t.Errorf("Bytes returned %d, want at least the %d of the names", counted, n*length)
			}
			time.Sleep(time.Hour) // the waiters lapse
			synctest.Wait()
			w.recorder.forget()
			if kept := heap() - before; kept > length {
				w.t.Errorf("the heap keeps %d KiB of %d KiB, want at most %d KiB", kept>>10, n*length>>10, length>>10)
			}
		})
	}
}

// walked returns the bytes of a mutex, counted over all its parts.
func walked(m *mutex) int64 {
	n := mutexBytes + len(m.name()) + len(m.owner())
	if x := m.extra; x != nil {
		n += extraBytes
		for _, e := range x.all {
			n += entryBytes + len(e.contender)
		}
		if x.last != "" {
			n += len(m.name()) + len(x.last)
		}
		if t := x.unconfirmed; t != nil {
			n += ticketBytes + len(t.mutex) + len(t.contender)
		}
		for _, f := range x.fields {
			n += fieldBytes + len(f.Name) + len(f.Value)
		}
	}
	return int64(n)
}

// TestCountedBytesMatchAWalk runs random requests and transactions.
func TestCountedBytesMatchAWalk(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			w := newWorld(t, Recovery{Token: 5, Delay: 3 * sec, Leases: func(yield func(simba.Lease, error) bool) {
				yield(simba.Lease{Mutex: "x", Owner: "c1", Token: 5, TTL: sec, Fields: []simba.Field{{Name: "f", Value: "1"}}}, nil)
			}})
			text := func() string { return strings.Repeat("v", rng.IntN(3)*rng.IntN(300)) }
			lock := func() simba.Lock {
				l := simba.Lock{Owner: fmt.Sprint("c", rng.IntN(5)), TTL: time.Duration(1+rng.IntN(5000)) * ms}
				if l.Owner += text(); rng.IntN(4) == 0 {
					l.Owner = ""
				}
				for range rng.IntN(3) * rng.IntN(3) {
					l.Fields = append(l.Fields, simba.Field{Name: fmt.Sprint("f", len(l.Fields), text()), Value: text()})
				}
				return l
			}
			var waiting []*blocked
			for range 500 {
				m, c := string("xyz"[rng.IntN(3)]), fmt.Sprint("c", rng.IntN(5))
				switch rng.IntN(8) {
				case 0:
					w.acquire(m, c, time.Duration(1+rng.IntN(3000))*ms, 0)
				case 1:
					b := &blocked{w: w, woken: make(chan struct{})}
					o, ticket, err := w.e.Acquire(context.Background(), simba.AcquireRequest{Mutex: m, Contender: c, TTL: sec, Waiter: b, Session: uint64(rng.IntN(2))})
					w.mustCommit(o.Seq, err)
					if b.ticket = ticket; ticket != nil {
						waiting = append(waiting, b)
					}
				case 2:
					if n := len(waiting); n > 0 {
						if b := waiting[n-1]; b.end(simba.EndReason(rng.IntN(4))).Status != simba.StatusWaiting {
							waiting = waiting[:n-1]
						}
					}
				case 3:
					w.release(m, c)
				case 4:
					w.listen(m, c)
				case 5:
					time.Sleep(time.Duration(rng.IntN(2000)) * ms)
				default:
					tx := w.e.beginTx()
					for range 1 + rng.IntN(4) {
						switch rng.IntN(6) {
						case 0:
							tx.Take(m, lock())
						case 1:
							if tx.Lock(m).Exists() {
								tx.Change(m, lock(), rng.IntN(2) == 0)
							}
						case 2:
							tx.Drop(m)
						case 3:
							tx.Enqueue(m, c+text(), float64(rng.IntN(3)))
						case 4:
							tx.Dequeue(m, c)
						case 5: // a transaction of several keys
							m = string("xyz"[rng.IntN(3)])
						}
					}
					if seq, err := tx.commit(); err != simba.ErrRecovering {
						w.mustCommit(seq, err)
					}
					tx.end()
				}
				synctest.Wait()
				w.audit()
			}
		})
	}
}
