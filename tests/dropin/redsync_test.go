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

// newMutex returns a redsync mutex with its own client. It raises the timeout of requests: the
// default, a twentieth of the expiry, is too short on a busy machine.
func newMutex(t testing.TB, s *simbatest.Server, name string, options ...redsync.Option) *redsync.Mutex {
	t.Helper()
	options = append([]redsync.Option{redsync.WithTimeoutFactor(1)}, options...)
	return redsync.New(goredis.NewPool(connect(t, s))).NewMutex(name, options...)
}

type syncer struct{ *redsync.Mutex }

func (k syncer) acquire(ctx context.Context) (string, error) {
	err := k.LockContext(ctx)
	return k.Value(), err
}

func (k syncer) release(ctx context.Context) error {
	if ok, err := k.ExtendContext(ctx); err != nil || !ok {
		return fmt.Errorf("ExtendContext returns %t, %w", ok, err)
	}
	ok, err := k.UnlockContext(ctx)
	if err == nil && !ok {
		err = errors.New("UnlockContext returns false: the lease was lost")
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
	simbatest.Must(t, m.Lock())
	is(t, rdb, m.Value(), "get", "m")
	if ms := number(t, rdb, "pttl", "m"); ms <= 0 || ms > 30_000 {
		t.Errorf("PTTL of the lock is %d ms, want 1 to 30,000", ms)
	}
	if until := m.Until(); !until.After(time.Now()) {
		t.Errorf("Until returns %v, want a time in the future", until)
	}
	first, err := record(t.Context(), rdb, "simba.owner", "m")
	simbatest.Must(t, err)

	other := newMutex(t, s, "m", redsync.WithTries(1))
	taken := new(redsync.ErrTaken)
	if err := other.TryLock(); !errors.As(err, &taken) {
		t.Errorf("TryLock of a held lock returns %v, want ErrTaken", err)
	}
	if err := other.Lock(); !errors.As(err, &taken) {
		t.Errorf("Lock of a held lock returns %v, want ErrTaken", err)
	}

	is(t, rdb, int64(1), "pexpire", "m", 15_000)
	if ok, err := m.Extend(); !ok || err != nil {
		t.Fatalf("Extend returns %t, %v, want true", ok, err)
	}
	if ms := number(t, rdb, "pttl", "m"); ms <= 15_000 || ms > 30_000 {
		t.Errorf("after Extend, PTTL of the lock is %d ms, want 15,001 to 30,000", ms)
	}
	if o, err := record(t.Context(), rdb, "simba.owner", "m"); err != nil || o["token"] != first["token"] {
		t.Errorf("after Extend, SIMBA.OWNER returns %v, %v; before: %v; want the same token", o, err, first)
	}

	if ok, err := m.Unlock(); !ok || err != nil {
		t.Fatalf("Unlock returns %t, %v, want true", ok, err)
	}
	if ok, err := m.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
		t.Errorf("a second Unlock returns %t, %v, want ErrLockAlreadyExpired", ok, err)
	}
	is(t, rdb, int64(0), "exists", "m")
	if err := other.TryLock(); err != nil {
		t.Errorf("TryLock of the second mutex after Unlock returns %v", err)
	}
	if ok, err := m.Extend(); ok || err == nil {
		t.Errorf("the former owner's Extend of another's lock returns %t, %v, want an error", ok, err)
	}
}
