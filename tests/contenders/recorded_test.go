package contenders

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// recorded is a contender whose callbacks a test can wait for.
type recorded struct {
	*client.Contender
	client   *client.Client
	mutex    string
	acquired chan client.State
	released chan client.State
	tenure   atomic.Pointer[context.Context] // the context of the latest tenure
}

func newRecorded(t testing.TB, c *client.Client, cfg client.ContenderConfig) *recorded {
	t.Helper()
	k := &recorded{client: c, mutex: cfg.Mutex, acquired: make(chan client.State, 100), released: make(chan client.State, 100)}
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

func (k *recorded) ownership() context.Context { return *k.tenure.Load() }

func (k *recorded) token() uint64 { return client.Token(k.ownership()) }

// renewed waits until the contender has renewed its lease.
func (k *recorded) renewed(t testing.TB) {
	t.Helper()
	until := k.Owner().TransitionAt
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if o := k.Owner(); o.TransitionAt.After(until) {
			return
		}
	}
	t.Fatalf("%s does not renew its lease; Owner returns %+v", k.ID(), k.Owner())
}

// noCallbacks fails the test if there were callbacks that the test has not received.
func (k *recorded) noCallbacks(t testing.TB) {
	t.Helper()
	if a, r := len(k.acquired), len(k.released); a+r != 0 {
		t.Errorf("%s: OnAcquired was called %d more times, OnReleased %d", k.ID(), a, r)
	}
}

func (k *recorded) start(t testing.TB) {
	t.Helper()
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
}

func (k *recorded) stop(t testing.TB) {
	t.Helper()
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ask returns the owner at the server.
func (k *recorded) ask(t testing.TB) (client.Owner, error) {
	t.Helper()
	return k.client.Owner(t.Context(), k.mutex)
}

// waits returns a channel that gets a value when the contender is in the queue.
func (k *recorded) waits(t testing.TB) <-chan struct{} {
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
