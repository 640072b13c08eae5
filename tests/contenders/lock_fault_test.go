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

// lock locks "m". Both windows last ttl.
func lock(ctx context.Context, c *client.Client, ttl time.Duration) (*client.Lock, error) {
	return c.Lock(ctx, "m", client.WithTTL(ttl), client.WithTransition(ttl))
}

// A request may still be in flight when Lock returns, and the server may then grant the mutex. The
// client must release it at once. The lease lasts for hours, so the test would notice a missing
// release.
func TestALateGrantToACanceledLockIsReleased(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	link := stores.NewLink(t, s.Addr)
	holder, other := newClient(t, s.Addr), newClient(t, link.Addr())
	for range 5 {
		held, err := lock(t.Context(), holder, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		link.Delay(60 * time.Millisecond) // in each direction, so no reply arrives in time
		_, err = lock(ctx, other, time.Hour)
		cancel()
		if !errors.Is(err, client.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock returns %v, want ErrNotAcquired and context.DeadlineExceeded", err)
		}
		if err := held.Unlock(t.Context()); err != nil { // while the late request arrives
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), simbatest.Patience)
	defer cancel()
	if _, err := lock(ctx, holder, time.Hour); err != nil {
		t.Fatal(err)
	}
	serverSaw(t, changes(t, connect(t, s.Addr), "m"), nil)
}

func TestAWaitingLockSurvivesARestartOfItsServer(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	first, err := lock(t.Context(), newClient(t, s.Addr), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	second, locked := newClient(t, s.Addr), make(chan error, 1)
	go func() {
		_, err := lock(t.Context(), second, 20*time.Second)
		locked <- err
	}()
	s.Restart()
	select {
	case err := <-locked:
		t.Fatalf("the second Lock returns %v during the first, want it to wait", err)
	case <-time.After(500 * time.Millisecond):
	}
	if err := first.Context().Err(); err != nil {
		t.Errorf("Err of the first Lock's context is %v, want nil", err)
	}
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := within(t, "the second Lock returns", locked); err != nil {
		t.Fatal(err)
	}
}

func TestUnlockReturnsErrLostAfterAPartition(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	link := stores.NewLink(t, s.Addr)
	l, err := lock(t.Context(), newClient(t, link.Addr()), 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	link.Blackhole()
	if _, err := lock(t.Context(), newClient(t, s.Addr), time.Hour); err != nil {
		t.Fatal(err)
	}
	if l.Context().Err() == nil {
		t.Error("the context of the first Lock has not ended, but another contender owns the mutex")
	}
	if err := l.Unlock(t.Context()); !errors.Is(err, client.ErrLost) {
		t.Errorf("Unlock returns %v, want ErrLost", err)
	}
}
