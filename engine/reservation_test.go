package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestASubscriberThatVanishedLosesItsReservationAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.poll("m", "b", sec)
		c := w.block("m", "c", sec, 0)
		w.recorder.deaf = map[string]bool{simba.ContenderChannel("m", "b"): true}
		start := time.Now()
		w.release("m", "a")
		c.granted()
		if took := time.Since(start); took != 0 {
			w.t.Errorf("c waited %v for a disconnected subscriber, want 0", took)
		}
	})
}

func TestASubscriberThatCameBackIsNotifiedAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		w.poll("m", "b", sec)
		w.recorder.late = map[string]bool{simba.ContenderChannel("m", "b"): true}
		w.release("m", "a")
		if got := w.offers("m", "b"); len(got) != 2 {
			w.t.Errorf("b got %d notices, want 2", len(got))
		}
	})
}

// The mutex had no owner in this run, so replies about it wait for no change.
func TestAMissedReservationAfterTheRecoveryDelayGoesToTheNextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Delay: 2 * sec})
		w.recorder.deaf = map[string]bool{simba.ContenderChannel("m", "a"): true}
		for _, c := range []string{"a", "b"} {
			w.listen("m", c)
			if o := w.acquire("m", c, sec, 0); o.Status != simba.StatusQueued {
				t.Fatalf("ACQUIRE of %s: %+v; want queued", c, o)
			}
		}
		time.Sleep(2 * sec)
		synctest.Wait()
		if got := w.recorder.published(simba.ContenderChannel("m", "b")); len(got) != 1 {
			t.Errorf("the next waiter got the notices %q, want one", got)
		}
	})
}
