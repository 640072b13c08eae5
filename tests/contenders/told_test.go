package contenders

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// told is a contender whose callbacks a test can wait for.
type told struct {
	*client.Contender
	client   *client.Client
	mutex    string
	acquired chan client.State
	released chan client.State
	tenure   atomic.Pointer[context.Context] // the latest
}

func newTold(t testing.TB, c *client.Client, cfg client.ContenderConfig) *told {
	t.Helper()
	k := &told{client: c, mutex: cfg.Mutex, acquired: make(chan client.State, 100), released: make(chan client.State, 100)}
	cfg.OnAcquired = func(ctx context.Context, s client.State) {
		k.tenure.Store(&ctx)
		k.acquired <- s
	}
	cfg.OnReleased = func(s client.State) { k.released <- s }
	var err error
	if k.Contender, err = c.NewContender(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Stop(context.Background()) })
	return k
}

// ownership is the context of the latest tenure.
func (k *told) ownership() context.Context { return *k.tenure.Load() }

// token is that of the latest tenure.
func (k *told) token() uint64 { return client.Token(k.ownership()) }

// renewed waits until the lease that is held now has been renewed.
func (k *told) renewed(t testing.TB) {
	t.Helper()
	until := k.Owner().TransitionAt
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if o := k.Owner(); o.TransitionAt.After(until) {
			return
		}
	}
	t.Fatalf("%s does not renew its lease; the owner is %+v", k.ID(), k.Owner())
}

// toldNothing checks that nothing has changed of which the test did not hear yet.
func (k *told) toldNothing(t testing.TB) {
	t.Helper()
	if a, r := len(k.acquired), len(k.released); a+r != 0 {
		t.Errorf("%s was told %d times that it is the owner and %d times that it is not", k.ID(), a, r)
	}
}

func (k *told) start(t testing.TB) {
	t.Helper()
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
}

func (k *told) stop(t testing.TB) {
	t.Helper()
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ask asks the server who owns the mutex.
func (k *told) ask(t testing.TB) (client.Owner, error) {
	t.Helper()
	return k.client.Owner(t.Context(), k.mutex)
}

// waits returns what tells when the contender is in the queue.
func (k *told) waits(t testing.TB) <-chan struct{} {
	is := make(chan struct{}, 1)
	go func() {
		for t.Context().Err() == nil {
			if o := k.Owner(); !o.IsZero() && o.ID != k.ID() {
				is <- struct{}{}
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return is
}
