package dropin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// newMutex returns a redsync mutex with connections of its own. By default a request may take only
// a twentieth of the expiry, which is too little on a busy machine.
func newMutex(t testing.TB, s *simbatest.Server, name string, options ...redsync.Option) *redsync.Mutex {
	t.Helper()
	options = append([]redsync.Option{redsync.WithTimeoutFactor(1)}, options...)
	return redsync.New(goredis.NewPool(connect(t, s))).NewMutex(name, options...)
}

// syncer is a contender that uses redsync.
type syncer struct{ *redsync.Mutex }

func (k syncer) acquire(ctx context.Context) (string, error) {
	err := k.LockContext(ctx)
	return k.Value(), err
}

func (k syncer) release(ctx context.Context) error {
	if ok, err := k.ExtendContext(ctx); err != nil || !ok {
		return fmt.Errorf("extend: %t, %w", ok, err)
	}
	ok, err := k.UnlockContext(ctx)
	if err == nil && !ok {
		err = errors.New("the lease was lost")
	}
	return err
}

func TestRedsyncContendsWithSimbaAcquire(t *testing.T) {
	t.Parallel()
	c := newContest(t, "redsync")
	for range 4 {
		m := newMutex(t, c.server, c.mutex, redsync.WithTries(10_000), redsync.WithRetryDelay(20*time.Millisecond), redsync.WithExpiry(lease*time.Millisecond))
		c.enter(syncer{m}, 12, 20*time.Millisecond)
	}
	c.enterSimba(2, 15, 40*time.Millisecond)
	c.end()
}

func TestRedsyncLocksExtendsAndUnlocks(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	rdb := connect(t, s)
	m := newMutex(t, s, "m", redsync.WithExpiry(30*time.Second), redsync.WithSetNXOnExtend())
	if err := m.Lock(); err != nil {
		t.Fatal(err)
	}
	is(t, rdb, m.Value(), "get", "m")
	if ms := number(t, rdb, "pttl", "m"); ms <= 0 || ms > 30_000 {
		t.Errorf("it has %d ms left", ms)
	}
	if until := m.Until(); !until.After(time.Now()) {
		t.Errorf("valid until %v", until)
	}
	first, err := record(t.Context(), rdb, "simba.owner", "m")
	if err != nil {
		t.Fatal(err)
	}

	other := newMutex(t, s, "m", redsync.WithTries(1))
	taken := new(redsync.ErrTaken)
	if err := other.TryLock(); !errors.As(err, &taken) {
		t.Errorf("another locks: %v", err)
	}
	if err := other.Lock(); !errors.As(err, &taken) {
		t.Errorf("another locks: %v", err)
	}

	is(t, rdb, int64(1), "pexpire", "m", 15_000)
	if ok, err := m.Extend(); !ok || err != nil {
		t.Fatalf("extend: %t, %v", ok, err)
	}
	if ms := number(t, rdb, "pttl", "m"); ms <= 15_000 || ms > 30_000 {
		t.Errorf("after the extension it has %d ms left", ms)
	}
	if o, err := record(t.Context(), rdb, "simba.owner", "m"); err != nil || o["token"] != first["token"] {
		t.Errorf("an extension changes the tenure: %v, %v; before %v", o, err, first)
	}

	if ok, err := m.Unlock(); !ok || err != nil {
		t.Fatalf("unlock: %t, %v", ok, err)
	}
	if ok, err := m.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
		t.Errorf("unlock twice: %t, %v", ok, err)
	}
	is(t, rdb, int64(0), "exists", "m")
	if err := other.TryLock(); err != nil {
		t.Errorf("after the unlock: %v", err)
	}
	if ok, err := m.Extend(); ok || err == nil {
		t.Errorf("extends another's lock: %t, %v", ok, err)
	}
}

func TestALockOfRedsyncExpires(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	rdb := connect(t, s)
	m := newMutex(t, s, "m", redsync.WithExpiry(30*time.Second))
	if err := m.Lock(); err != nil {
		t.Fatal(err)
	}
	// Lock fails if a request takes longer than the lease, so the lease becomes short only now.
	is(t, rdb, int64(1), "pexpire", "m", 300)
	k := &simba{rdb, "m", "ours"}
	if _, err := k.acquire(t.Context()); err != nil { // waits for the end of the lease
		t.Fatal(err)
	}
	if ok, err := m.Unlock(); ok || err == nil {
		t.Errorf("it unlocks another's lock: %t, %v", ok, err)
	}
	if ok, err := m.Extend(); ok || err == nil {
		t.Errorf("it extends another's lock: %t, %v", ok, err)
	}
	is(t, rdb, "ours", "get", "m")
}
