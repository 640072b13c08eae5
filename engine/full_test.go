package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

// askFull asks for a mutex while there is no memory for more, and reports whether it was refused.
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
			w.t.Errorf("a refused request has outcome %+v, ticket %v", o, ticket)
		}
	}
	w.mustCommit(o.Seq, err)
	w.audit()
	return o, refused
}

func TestAFullEngineRenewsForTheOwnerAndRefusesNewContenders(t *testing.T) {
	inBubble(t, func(w *world) {
		first := w.acquire("m", "a", sec, 0)
		time.Sleep(sec / 2)
		if o, _ := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "a"}); o.Status != simba.StatusRenewed || o.Token != first.Token || o.TTL != sec {
			w.t.Errorf("renewal by the owner: %+v", o)
		}
		before := len(w.history("m"))
		for _, r := range []simba.AcquireRequest{
			{Mutex: "m", Contender: "b"}, {Mutex: "m", Contender: "b", Waiter: &blocked{}},
			{Mutex: "free", Contender: "b"}, {Mutex: "free", Contender: "b", NoQueue: true}, {Mutex: "free", Contender: "b", Session: 1},
		} {
			if o, refused := w.askFull(r); !refused {
				w.t.Errorf("request %+v was not refused: %+v", r, o)
			}
		}
		if o, refused := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "b", NoQueue: true}); refused || o.Status != simba.StatusBusy {
			w.t.Errorf("a NoQueue request for a held mutex takes no memory: %+v, refused %t", o, refused)
		}
		if s := w.e.Stats(); s.Mutexes != 1 || s.Polling != 0 || len(w.history("m")) != before || len(w.history("free")) != 0 {
			w.t.Errorf("a refused request changed the state: %+v, %v, %v", s, w.history("m"), w.history("free"))
		}
		time.Sleep(sec)
		if o, refused := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "a"}); !refused {
			w.t.Errorf("a new tenure of the last owner was not refused: %+v", o)
		}
	})
}

func TestAFullEngineKeepsItsQueuesAndHandsOff(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", sec, 0)
		b := w.block("m", "b", sec, 0)
		w.poll("m", "c", sec)
		if o, _ := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "c"}); o.Status != simba.StatusQueued || o.Position != 2 {
			w.t.Errorf("another request of a polling waiter: %+v", o)
		}
		w.release("m", "a")
		b.granted()
		w.release("m", "b")
		if o, refused := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "d"}); !refused {
			w.t.Errorf("a request for a mutex that is reserved for another waiter was not refused: %+v", o)
		}
		if o, _ := w.askFull(simba.AcquireRequest{Mutex: "m", Contender: "c"}); o.Status != simba.StatusAcquired {
			w.t.Errorf("a request by the waiter with the reservation: %+v", o)
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
			w.t.Errorf("a request by the waiter with the reservation: %+v", o)
		}
	})
}
