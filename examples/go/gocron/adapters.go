package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/simba-resp/simba-resp/client"
)

// locker is a gocron.Locker: of all schedulers with a job of that name, one runs it each time.
type locker struct {
	c *client.Client
	// splay is how long a job stays locked at least. It is longer than the clocks of two schedulers
	// may differ: otherwise the later one runs a short job once more.
	splay time.Duration
}

var _ gocron.Locker = locker{}

// Lock implements gocron.Locker. gocron does not run the job if it returns an error.
func (l locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.c.TryLock(ctx, "gocron:"+job)
	if err != nil {
		return nil, err
	}
	return &jobLock{lock, time.Now().Add(l.splay)}, nil
}

// jobLock is a gocron.Lock. The client renews it until it is unlocked.
type jobLock struct {
	*client.Lock
	until time.Time
}

// Unlock implements gocron.Lock. If it is early, it returns at once, and the lock is released when
// the splay has passed, or by Close of the Client.
func (l *jobLock) Unlock(ctx context.Context) error {
	if early := time.Until(l.until); early > 0 {
		time.AfterFunc(early, func() { _ = l.Lock.Unlock(context.WithoutCancel(ctx)) })
		return nil
	}
	return l.Lock.Unlock(ctx)
}

// elector is a gocron.Elector: the scheduler whose contender owns the mutex runs all jobs.
type elector struct{ *client.Contender }

var _ gocron.Elector = elector{}

var errNotLeader = errors.New("another scheduler is the leader")

// newElector returns an elector whose contender contends until it is stopped.
func newElector(c *client.Client, mutex string) (elector, error) {
	k, err := c.NewContender(client.ContenderConfig{
		Mutex:      mutex,
		OnAcquired: func(context.Context, client.State) {}, // IsLeader asks instead
	})
	if err != nil {
		return elector{}, err
	}
	return elector{k}, k.Start()
}

// IsLeader implements gocron.Elector. It reads the clock, so it is right after a freeze, too.
func (e elector) IsLeader(context.Context) error {
	if e.IsOwner() {
		return nil
	}
	return fmt.Errorf("%w: %s", errNotLeader, e.Owner().ID)
}
