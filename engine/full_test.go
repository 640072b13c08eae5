package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/simba-resp/simba-resp"
)

// askFull sends a request with Full set, and reports whether the engine refused it.
func (w *world) askFull(r simba.AcquireRequest) (o simba.Outcome, refused bool) {
	w.t.Helper()
	if r.TTL == 0 {
		r.TTL = sec
	}
	r.Full = true
	o, ticket, err := w.e.Acquire(context.Background(), r)
	if refused = errors.Is(err, simba.ErrOutOfMemory); refused {
		err = nil
		if ticket != nil || o.Status != 0 {
			w.t.Errorf("a refused request has outcome %+v, ticket %v; want neither", o, ticket)
		}
	}
	w.mustCommit(o.Seq, err)
	w.audit()
	return o, refused
}

func TestAFullEngineKeepsItsQueuesAndHandsOff(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", sec, 0)
		b := w.block("m", "b", sec, 0)
		w.poll("m", "c", sec)
		if o, _ := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "c"}); o.Status != simba.StatusQueued || o.Position != 2 {
			w.t.Errorf("ACQUIRE of a polling waiter: %+v; want queued at position 2", o)
		}
		w.release("m", "a")
		b.granted()
		w.release("m", "b")
		if o, refused := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "d"}); !refused {
			w.t.Errorf("ACQUIRE of a mutex that is reserved for another waiter returned %+v, want ErrOutOfMemory", o)
		}
		if o, _ := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "c"}); o.Status != simba.StatusAcquired {
			w.t.Errorf("ACQUIRE of the waiter with the reservation: %+v; want acquired", o)
		}
	})
}

func TestAFullEngineGrantsAReservationThatAScriptMade(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", sec, 0)
		w.poll("m", "b", sec)
		tx := w.e.beginTx()
		defer tx.end()
		tx.Drop("m")
		tx.Dequeue("m", "b")
		w.mustCommit(tx.commit())
		if o, _ := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "b"}); o.Status != simba.StatusAcquired {
			w.t.Errorf("ACQUIRE of the waiter with the reservation: %+v; want acquired", o)
		}
	})
}
