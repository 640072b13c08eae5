package history

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func ordered(window time.Duration) *Log {
	l := NewLog(&recorder{}, 0, false)
	l.Window = window
	return l
}

func TestEarlyTenureIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := ordered(100 * time.Millisecond)
		want := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := story(c, "m"); !slices.Equal(got, want) {
				t.Errorf("the history is %q, want %q", got, want)
			}
		}
		c.Record(acquired("m", "a", 1))
		c.Record(acquired("m", "c", 3))
		c.Record(endOf(simba.EventReleased, "m", "c", 3))
		c.Record(acquired("m", "b", 2), acquired("other", "x", 2))
		want("acquired a 1")
		c.Record(endOf(simba.EventReleased, "m", "b", 2))
		want("acquired a 1")
		c.Record(endOf(simba.EventExpired, "m", "a", 1))
		in := []string{"acquired a 1", "expired a 1", "acquired b 2", "released b 2", "acquired c 3", "released c 3"}
		want(in...)
		time.Sleep(time.Second) // the timer would fire by now if it had not been stopped
		c.Record(acquired("m", "d", 4))
		want(append(in, "acquired d 4")...)

		c.Record(acquired("m", "e", 5)) // the end of d has not arrived
		time.Sleep(99 * time.Millisecond)
		want(append(in, "acquired d 4")...)
		time.Sleep(time.Millisecond)
		want(append(in, "acquired d 4", "acquired e 5")...)
		c.Record(endOf(simba.EventReleased, "m", "d", 4)) // the log has not waited so long
		want(append(in, "acquired d 4", "acquired e 5", "released d 4")...)
		if len(c.held) != 0 {
			t.Errorf("events are still held back: %v", c.held)
		}
	})
}

func TestHeldEventKeepsItsFirstVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := ordered(100 * time.Millisecond)
		c.Record(acquired("m", "a", 1))
		first := acquired("m", "b", 2)
		first.Reason = "handoff"
		c.Record(first)
		c.Record(acquired("m", "b", 2))
		c.Record(endOf(simba.EventReleased, "m", "a", 1))
		if last, _ := c.Last("m"); last.Owner != "b" || last.Reason != "handoff" {
			t.Errorf("Last: %+v; want b with the reason handoff", last)
		}
	})
}

func TestAwaitWaitsForHeldEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := ordered(100 * time.Millisecond)
		find := func(want ...string) {
			t.Helper()
			if err := c.Await(t.Context(), "m"); err != nil {
				t.Errorf("Await: %v, want no error", err)
			}
			if got := story(c, "m"); !slices.Equal(got, want) {
				t.Errorf("the history is %q, want %q", got, want)
			}
		}
		c.Record(acquired("m", "a", 1))
		began := time.Now()
		find("acquired a 1")
		if waited := time.Since(began); waited != 0 {
			t.Errorf("Await waited %v though no event was held back", waited)
		}

		// The end of a arrives after 30 ms.
		c.Record(acquired("m", "b", 2))
		time.AfterFunc(30*time.Millisecond, func() { c.Record(endOf(simba.EventExpired, "m", "a", 1)) })
		in := []string{"acquired a 1", "expired a 1", "acquired b 2"}
		find(in...)
		if waited := time.Since(began); waited != 30*time.Millisecond {
			t.Errorf("Await waited %v, want 30 ms", waited)
		}

		// The end of b never arrives. An event that is held back later does not prolong the wait.
		c.Record(acquired("m", "c", 3))
		time.AfterFunc(90*time.Millisecond, func() { c.Record(acquired("m", "d", 4)) })
		find(append(in, "acquired c 3")...)

		c.Record(acquired("m", "e", 5))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := c.Await(ctx, "m"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Await with a context that ends: %v, want its error", err)
		}
	})
}

func TestEndBeforeBeginningIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := []string{"acquired a 1", "released a 1", "acquired b 2", "released b 2", "acquired c 3", "released c 3", "acquired d 4"}
		c := ordered(100 * time.Millisecond)
		c.Record(acquired("m", "a", 1))
		// b had disconnected, so its server handed the mutex off to c.
		c.Record(endOf(simba.EventReleased, "m", "b", 2), acquired("m", "c", 3))
		if got := story(c, "m"); !slices.Equal(got, in[:1]) {
			t.Errorf("the history is %q, want %q", got, in[:1])
		}
		// This reply was sent before the reply above.
		c.Record(endOf(simba.EventReleased, "m", "a", 1), acquired("m", "b", 2))
		if got := story(c, "m"); !slices.Equal(got, in[:5]) {
			t.Errorf("the history is %q, want %q", got, in[:5])
		}
		c.Record(endOf(simba.EventReleased, "m", "c", 3), acquired("m", "d", 4))
		if got := story(c, "m"); !slices.Equal(got, in) {
			t.Errorf("the history is %q, want %q", got, in)
		}
		c.Record(endOf(simba.EventReleased, "m", "f", 6)) // the beginning of f has not arrived
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := story(c, "m"); !slices.Equal(got, append(in, "released f 6")) || len(c.held) != 0 {
			t.Errorf("history %q, held back %v; want all recorded and none held back", got, c.held)
		}
		c.Record(acquired("m", "f", 6)) // too late
		if got := story(c, "m"); !slices.Equal(got, append(in, "released f 6")) {
			t.Errorf("history %q; want no beginning of f after its end", got)
		}
	})
}

// Each change arrives twice: in the reply to its request, and from the store. Each arrival may be
// late by less than the window, and replies may overtake each other.
func TestEventsFromReplyAndStoreAreRecordedInOrderOfTenures(t *testing.T) {
	type arrival struct {
		at     time.Duration
		events []simba.Event
	}
	const tenures, window = 12, 100
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			late := func() time.Duration { return time.Duration(rng.IntN(window-10)) * time.Millisecond }
			c := ordered(window * time.Millisecond)
			want := []simba.Event{{Kind: simba.EventAcquired, Mutex: "m", Token: 1}}
			c.Record(want...)
			var arrivals []arrival
			var now, stored time.Duration
			for token := uint64(2); token <= tenures; token++ {
				now += time.Duration(rng.IntN(30)) * time.Millisecond
				handoff := []simba.Event{{Kind: simba.EventReleased, Mutex: "m", Token: token - 1}, {Kind: simba.EventAcquired, Mutex: "m", Token: token}}
				want = append(want, handoff...)
				arrivals = append(arrivals, arrival{now + late(), handoff})
				stored = max(stored, now+late())
				arrivals = append(arrivals, arrival{stored, handoff[:1]}, arrival{stored, handoff[1:]})
			}
			slices.SortStableFunc(arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
			began := time.Now()
			for _, e := range arrivals {
				time.Sleep(e.at - time.Since(began))
				c.Record(e.events...)
			}
			time.Sleep(c.Window)
			got := c.Find(simba.HistoryRequest{Mutex: "m", Count: 100})
			if !slices.EqualFunc(got, want, func(a, b simba.Event) bool { return a.Kind == b.Kind && a.Token == b.Token }) {
				t.Fatalf("seed %d: the history is %v, want it in the order of tenures", seed, got)
			}
		})
	}
}
