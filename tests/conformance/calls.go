package conformance

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

// The calls of this file must succeed. The tests of single engines use them.

// Request returns a request without a transition window.
func Request(mutex, contender string, ttl time.Duration) simba.AcquireRequest {
	return simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl}
}

// Take begins a tenure.
func Take(t testing.TB, b simba.Backend, mutex, contender string, ttl time.Duration) simba.Outcome {
	t.Helper()
	o, _, err := b.Acquire(t.Context(), Request(mutex, contender, ttl))
	if err != nil || o.Status != simba.StatusAcquired {
		t.Fatalf("ACQUIRE: %s should acquire %s, got %+v, %v", contender, mutex, o, err)
	}
	return o
}

// Release ends the tenure of a contender.
func Release(t testing.TB, b simba.Backend, mutex, contender string) {
	t.Helper()
	ok, _, err := b.Release(t.Context(), simba.ReleaseRequest{Mutex: mutex, Contender: contender})
	if err != nil || !ok {
		t.Fatalf("RELEASE: %s should release %s, got %v, %v", contender, mutex, ok, err)
	}
}

// Renew is a GUARD of the owner.
func Renew(t testing.TB, b simba.Backend, mutex, contender string, ttl time.Duration) simba.Outcome {
	t.Helper()
	o, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: mutex, Contender: contender, TTL: ttl})
	if err != nil || o.Status != simba.StatusRenewed {
		t.Fatalf("GUARD: %s should renew %s, got %+v, %v", contender, mutex, o, err)
	}
	return o
}

// OwnerOf returns the tenure of a mutex.
func OwnerOf(t testing.TB, b simba.Backend, mutex string) simba.Tenure {
	t.Helper()
	o, _, err := b.Owner(t.Context(), mutex)
	if err != nil {
		t.Fatalf("OWNER: %v; want no error", err)
	}
	return o
}

// Blocked is the waiter of a blocked acquire.
type Blocked struct {
	Ticket simba.Ticket
	Woken  chan struct{} // closed by the first Wake
	wake   sync.Once
}

// NewBlocked returns a waiter without a ticket.
func NewBlocked() *Blocked { return &Blocked{Woken: make(chan struct{})} }

// Wake implements simba.Waiter.
func (w *Blocked) Wake() { w.wake.Do(func() { close(w.Woken) }) }

// Block begins a wait for a mutex that is not free.
func Block(t testing.TB, b simba.Backend, mutex, contender string, ttl time.Duration) *Blocked {
	t.Helper()
	w := NewBlocked()
	r := Request(mutex, contender, ttl)
	r.Waiter = w
	o, ticket, err := b.Acquire(t.Context(), r)
	if err != nil || o.Status != simba.StatusWaiting {
		t.Fatalf("ACQUIRE … WAIT: %s should wait for %s, got %+v, %v", contender, mutex, o, err)
	}
	w.Ticket = ticket
	return w
}

// Granted waits until the waiter is granted the mutex.
func (w *Blocked) Granted(t testing.TB) simba.Outcome {
	t.Helper()
	select {
	case <-w.Woken:
	case <-time.After(need.Hang):
		t.Fatal("the waiter was not granted the mutex")
	}
	o, err := w.Ticket.End(simba.EndWoken)
	if err != nil || o.Status != simba.StatusAcquired {
		t.Fatalf("the end of the woken wait: %+v, %v; want acquired", o, err)
	}
	return o
}

// OpenSoon calls open until it succeeds. On a busy machine the store may at first answer too late.
func OpenSoon[B any](t testing.TB, open func() (B, error)) B {
	t.Helper()
	for end := time.Now().Add(need.Hang); ; {
		b, err := open()
		if err == nil {
			return b
		}
		if time.Now().After(end) {
			t.Fatalf("Open: %v; want no error", err)
		}
	}
}

// AwaitRenewal waits until a has renewed its lease of m. It fails the test if the store refuses that.
func AwaitRenewal(t testing.TB, b simba.Backend) {
	t.Helper()
	need.Await(t, "the owner has renewed its lease", func() bool {
		o, _, err := b.Acquire(t.Context(), Request("m", "a", time.Minute))
		if refusal := (*simba.MisconfiguredError)(nil); errors.As(err, &refusal) {
			t.Fatal(err)
		}
		return err == nil && o.Status == simba.StatusRenewed
	})
}

// WrongClock checks that a server's estimate of its store's clock decides nothing: if the estimate is
// wrong, the server tries again. astray sets the estimate ahead of what it is now.
func WrongClock(t *testing.T, b simba.Backend, astray func(by time.Duration)) {
	t.Helper()
	for i, step := range []time.Duration{time.Hour, -time.Hour} {
		mutex := fmt.Sprintf("step-%d", i)
		astray(step)
		Take(t, b, mutex, "a", long)
		w := Block(t, b, mutex, "b", long)
		astray(step)
		Renew(t, b, mutex, "a", long)
		astray(step)
		Release(t, b, mutex, "a")
		w.Granted(t)
		if o := OwnerOf(t, b, mutex); o.Owner != "b" || o.Transition > long || o.Transition < long-time.Minute {
			t.Errorf("OWNER: %+v; want b with its whole lease", o)
		}
	}
}
