package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestDeadlinesComeInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var h deadlines
		want := map[*mutex]simba.Instant{}
		for range 300 {
			switch m := newMutex("m", 0); {
			case len(h) > 0 && rng.IntN(3) == 0:
				m = h[rng.IntN(len(h))].m
				h.remove(m)
				delete(want, m)
			case len(h) > 0 && rng.IntN(3) == 0:
				m = h[rng.IntN(len(h))].m
				at := simba.Instant(rng.IntN(1000))
				h.set(m, at)
				want[m] = min(want[m], at) // set does not move a mutex to a later instant
			case len(h) > 0 && rng.IntN(3) == 0:
				m = h[0].m
				at := want[m] + simba.Instant(rng.IntN(100))
				h.postpone(m, at)
				want[m] = at
			default:
				want[m] = simba.Instant(rng.IntN(1000))
				h.set(m, want[m])
			}
		}
		if len(h) != len(want) {
			t.Fatalf("%d deadlines, want %d", len(h), len(want))
		}
		last := simba.Instant(-1)
		for len(h) > 0 {
			d := h[0]
			if d.at < last || d.at != want[d.m] {
				t.Fatalf("the first deadline is %v, want %v, not before the previous one %v", d.at, want[d.m], last)
			}
			last = d.at
			h.remove(d.m)
		}
	}
}

func TestTheTableFindsItsMutexesWhileItGrowsAndShrinks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tab := newTable()
	want := map[string]*mutex{}
	check := func() {
		t.Helper()
		if tab.len != len(want) {
			t.Fatalf("table has length %d, want %d", tab.len, len(want))
		}
		for name, m := range want {
			if tab.get(m.hash, name) != m {
				t.Fatalf("the table does not find %s", name)
			}
		}
	}
	for i := range 5000 {
		m := newMutex(fmt.Sprint(i), rng.Uint64()>>shardBits)
		tab.add(m)
		want[m.name()] = m
	}
	check()
	for name, m := range want {
		if len(want) <= 3 {
			break
		}
		tab.remove(m)
		delete(want, name)
	}
	check()
	if len(tab.buckets) > 64 {
		t.Errorf("the table keeps %d buckets for %d mutexes, want at most 64 buckets", len(tab.buckets), len(want))
	}
}

func TestScanFilters(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("held", "a", time.Hour, 0)
		w.acquire("both", "a", time.Hour, 0)
		w.acquire("both", "b", time.Hour, 0)
		w.acquire("waited", "a", sec, 0)
		w.acquire("waited", "b", sec, 0)
		time.Sleep(sec)
		scan := func(r simba.ScanRequest) (all []string) {
			r.Count = 1
			for more := true; more; more = r.Cursor != 0 {
				page, _, err := w.e.Scan(context.Background(), r)
				if err != nil || page.Cursor >= 1<<53 {
					w.t.Fatalf("Scan returned the cursor %d, too large for an IEEE double, or %v", page.Cursor, err)
				}
				all, r.Cursor = append(all, page.Mutexes...), page.Cursor
			}
			slices.Sort(all)
			return all
		}
		for _, c := range []struct {
			r    simba.ScanRequest
			want []string
		}{
			{simba.ScanRequest{}, []string{"both", "held", "waited"}},
			{simba.ScanRequest{Held: true}, []string{"both", "held"}},
			{simba.ScanRequest{Contended: true}, []string{"both", "waited"}},
			{simba.ScanRequest{Match: func(m string) bool { return m == "held" }}, []string{"held"}},
		} {
			if got := scan(c.r); !slices.Equal(got, c.want) {
				w.t.Errorf("scan %+v returned %v, want %v", c.r, got, c.want)
			}
		}
	})
}

// TestRandomWalkKeepsEveryInvariant runs random requests of many contenders in fake time, and
// checks the invariants after every step. It checks mutual exclusion by the replies to contenders.
func TestRandomWalkKeepsEveryInvariant(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomWalk(t, seed) })
		})
	}
}

type claim struct {
	owner string
	until time.Time // the end of the lease in the last reply to the owner
}

func randomWalk(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 99))
	w := newWorld(t, Recovery{})
	if seed%4 == 0 {
		w.e.SetHandoffWindow(0)
	}
	mutexes := []string{"x", "y", "z"}
	claims := map[string]claim{}
	tokens := map[string]uint64{}
	waiting := map[string][]*blocked{}

	learn := func(mutex, contender string, o simba.Outcome) {
		t.Helper()
		if o.Status != simba.StatusAcquired && o.Status != simba.StatusRenewed {
			return
		}
		if c := claims[mutex]; c.owner != "" && c.owner != contender && time.Now().Before(c.until) {
			t.Fatalf("%s: %s owns the mutex until %v, and %s owns it too at %v", mutex, c.owner, c.until, contender, time.Now())
		}
		// An earlier reply to the same owner may have shown the same tenure.
		fresh := claims[mutex].owner != contender
		if o.Token < tokens[mutex] || fresh && o.Token == tokens[mutex] {
			t.Fatalf("%s: token %d after %d; want a larger one, or the owner's own again", mutex, o.Token, tokens[mutex])
		}
		tokens[mutex] = o.Token
		claims[mutex] = claim{contender, time.Now().Add(o.Transition)}
	}
	collect := func() {
		for again := true; again; { // until End returns a result
			again = false
			synctest.Wait()
			for _, m := range mutexes {
				waiting[m] = slices.DeleteFunc(waiting[m], func(b *blocked) bool {
					if !b.isWoken() {
						return false
					}
					why := simba.EndWoken
					if rng.IntN(5) == 0 {
						why = simba.EndGone
					}
					o := b.end(why)
					learn(m, b.ticket.(*ticket).contender, o)
					again = again || o.Status == simba.StatusWaiting
					return o.Status != simba.StatusWaiting
				})
			}
		}
	}

	for range 400 {
		m := mutexes[rng.IntN(len(mutexes))]
		c := fmt.Sprintf("c%d", rng.IntN(8))
		ttl := time.Duration(1+rng.IntN(3000)) * ms
		transition := time.Duration(rng.IntN(1000)) * ms
		switch rng.IntN(14) {
		case 0, 1, 2:
			learn(m, c, w.acquire(m, c, ttl, transition))
		case 3, 4, 5:
			b := &blocked{w: w, woken: make(chan struct{})}
			o, tk, err := w.e.Acquire(context.Background(), simba.AcquireRequest{
				Mutex: m, Contender: c, TTL: ttl, Transition: transition, Waiter: b,
			})
			w.mustCommit(o.Seq, err)
			learn(m, c, o)
			if b.ticket = tk; tk != nil {
				waiting[m] = append(waiting[m], b)
			}
		case 6:
			learn(m, c, w.guard(m, c, ttl, transition, 0))
		case 7, 8:
			if w.release(m, c) && claims[m].owner == c {
				delete(claims, m)
			}
		case 9:
			freed, seq, err := w.e.Break(context.Background(), m, "")
			w.mustCommit(seq, err)
			if freed {
				delete(claims, m)
			}
		case 10:
			if rng.IntN(2) == 0 {
				w.listen(m, c)
			} else {
				w.recorder.unsubscribe(simba.ContenderChannel(m, c))
			}
		case 11:
			if n := len(waiting[m]); n > 0 {
				i := rng.IntN(n)
				b := waiting[m][i]
				waiting[m] = slices.Delete(waiting[m], i, i+1)
				why := simba.EndReason(1 + rng.IntN(3)) // timeout, left, gone
				learn(m, b.ticket.(*ticket).contender, b.end(why))
			}
		case 12, 13: // a script of Simba's: contenders 0 to 3 do not queue
			taken := false
			w.commit(func(tx simba.Tx) {
				if taken = tx.MayTake(m, c); taken {
					tx.Take(m, str(c, ttl))
					return
				}
				tx.Refuse(m, c)
				if c > "c3" {
					tx.Enqueue(m, c, float64(rng.IntN(3)))
				}
			})
			if taken {
				learn(m, c, simba.Outcome{Status: simba.StatusAcquired, Token: w.owner(m).Token, Transition: ttl})
			}
		}
		w.audit()
		collect()
		if rng.IntN(3) == 0 {
			time.Sleep(time.Duration(rng.IntN(1500)) * ms)
			collect()
		}
		w.audit()
	}
	time.Sleep(time.Hour)
	collect()
	for len(waiting["x"])+len(waiting["y"])+len(waiting["z"]) > 0 {
		time.Sleep(time.Hour) // every owner lets its lease end, so the queue must become empty
		before := len(waiting["x"]) + len(waiting["y"]) + len(waiting["z"])
		collect()
		if len(waiting["x"])+len(waiting["y"])+len(waiting["z"]) == before {
			t.Fatal("no blocked waiter was woken")
		}
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	if s := w.e.Stats(); s.Mutexes != 0 {
		t.Errorf("%d mutexes are in memory, want 0: %+v", s.Mutexes, s)
	}
}
