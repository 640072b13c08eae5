package contenders

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func newLocker(t testing.TB, addr, mutex string, ttl time.Duration) *client.Locker {
	t.Helper()
	l, err := newClient(t, addr).NewLocker(client.LockerConfig{Mutex: mutex, TTL: ttl, Transition: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// A request that is under way when Lock returns may be granted still. It is given back at once: a lease lasts
// for hours here, so the holder gets nothing from waiting.
func TestALockThatIsGivenUpHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	link := stores.NewLink(t, s.Addr)
	holder, l := newLocker(t, s.Addr, "m", time.Hour), newLocker(t, link.Addr(), "m", time.Hour)
	for range 5 {
		if _, err := holder.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		link.Delay(60 * time.Millisecond) // each way: no answer comes in time
		_, err := l.Lock(ctx)
		cancel()
		if !errors.Is(err, client.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		if err := holder.Unlock(t.Context()); err != nil { // as the late request arrives
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), simbatest.Patience)
	defer cancel()
	if _, err := holder.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	serverSaw(t, changes(t, connect(t, s.Addr), "m"), nil)
}

func TestALockThatWaitsOutlivesItsServer(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	first, second := newLocker(t, s.Addr, "m", 20*time.Second), newLocker(t, s.Addr, "m", 20*time.Second)
	ownership, err := first.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locked := make(chan error, 1)
	go func() {
		_, err := second.Lock(t.Context())
		locked <- err
	}()
	s.Restart()
	select {
	case err := <-locked:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	if err := ownership.Err(); err != nil {
		t.Errorf("the first has lost it: %v", err)
	}
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := within(t, "the second locks", locked); err != nil {
		t.Fatal(err)
	}
}

func TestUnlockSaysThatTheMutexWasLost(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	link := stores.NewLink(t, s.Addr)
	l, other := newLocker(t, link.Addr(), "m", 300*time.Millisecond), newLocker(t, s.Addr, "m", time.Hour)
	ownership, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	link.Blackhole()
	if _, err := other.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ownership.Err() == nil {
		t.Error("two hold the lock")
	}
	if err := l.Unlock(t.Context()); !errors.Is(err, client.ErrLost) {
		t.Errorf("Unlock returns %v", err)
	}
}
