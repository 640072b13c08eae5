package dropin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bsm/redislock"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// locker is a contender that uses bsm/redislock. It obtains all keys or none.
type locker struct {
	client *redislock.Client
	keys   []string
	held   *redislock.Lock
}

func newLocker(t testing.TB, s *simbatest.Server, keys ...string) *locker {
	t.Helper()
	return &locker{client: redislock.New(connect(t, s)), keys: keys}
}

func (k *locker) acquire(ctx context.Context) (string, error) {
	held, err := k.client.ObtainMulti(ctx, k.keys, lease*time.Millisecond,
		&redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)})
	if err != nil {
		return "", err
	}
	k.held = held
	return held.Token(), nil
}

func (k *locker) release(ctx context.Context) error {
	if err := k.held.Refresh(ctx, lease*time.Millisecond, nil); err != nil {
		return fmt.Errorf("Refresh: %w", err)
	}
	if left, err := k.held.TTL(ctx); err != nil || left <= 0 {
		return fmt.Errorf("the owner's TTL returns %v, %w", left, err)
	}
	return k.held.Release(ctx)
}

func TestRedislockContendsWithSimbaAcquire(t *testing.T) {
	t.Parallel()
	c := newContest(t, "redislock")
	for range 2 {
		c.enter(newLocker(t, c.server, c.mutex), 12, 20*time.Millisecond)
		c.enter(newLocker(t, c.server, "also", c.mutex), 12, 20*time.Millisecond)
	}
	c.enterSimba(2, 15, 40*time.Millisecond)
	c.end()
}

func TestRedislockObtainsAllKeysOrNone(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	rdb := connect(t, s)
	first, err := redislock.Obtain(t.Context(), connect(t, s), "b", lease*time.Millisecond, &redislock.Options{Token: "first", Metadata: " of a job"})
	simbatest.Must(t, err)
	other := redislock.New(connect(t, s))
	if _, err := other.ObtainMulti(t.Context(), []string{"a", "b"}, lease*time.Millisecond, nil); !errors.Is(err, redislock.ErrNotObtained) {
		t.Errorf("ObtainMulti with a held key returns %v, want ErrNotObtained", err)
	}
	is(t, rdb, int64(0), "exists", "a")
	is(t, rdb, "first of a job", "get", "b")

	// The same token obtains the lock again.
	if _, err := other.Obtain(t.Context(), "b", lease*time.Millisecond, &redislock.Options{Token: "first"}); err != nil {
		t.Errorf("Obtain with the owner's token returns %v", err)
	}
	is(t, rdb, "first", "get", "b")
	if err := first.Release(t.Context()); !errors.Is(err, redislock.ErrLockNotHeld) {
		t.Errorf("Release of the lock that was obtained again returns %v, want ErrLockNotHeld", err)
	}
	is(t, rdb, int64(1), "del", "b")

	both, err := other.ObtainMulti(t.Context(), []string{"a", "b"}, lease*time.Millisecond, nil)
	simbatest.Must(t, err)
	if x, y := number(t, rdb, "get", "simba:{a}:token"), number(t, rdb, "get", "simba:{b}:token"); x == y {
		t.Errorf("both keys have the token %d, want a token of its own for each", x)
	}
	if err := both.Release(t.Context()); err != nil {
		t.Errorf("Release returns %v", err)
	}
	is(t, rdb, int64(0), "exists", "a", "b")
}
