package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/simba-resp/simba-resp/client"
)

// locker is a gocron.Locker. When a job is due in several schedulers, only one of them runs it.
type locker struct {
	c *client.Client
	// splay is the shortest time for which a job stays locked. It must be longer than the
	// difference of the clocks of two schedulers. Otherwise both may run a short job, one after the
	// other.
	splay time.Duration
}

var _ gocron.Locker = locker{}

// Lock implements gocron.Locker. If Lock returns an error, gocron does not run the job.
func (l locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.c.TryLock(ctx, "gocron:"+job)
	if err != nil {
		return nil, err
	}
	return &jobLock{lock, time.Now().Add(l.splay)}, nil
}

// jobLock is a gocron.Lock. The client renews its lease until Unlock.
type jobLock struct {
	*client.Lock
	until time.Time
}

// Unlock implements gocron.Lock. If the splay has not passed yet, Unlock returns at once. The lock
// is then released when the splay has passed, or by Close of the Client.
func (l *jobLock) Unlock(ctx context.Context) error {
	if early := time.Until(l.until); early > 0 {
		time.AfterFunc(early, func() { _ = l.Lock.Unlock(context.WithoutCancel(ctx)) })
		return nil
	}
	return l.Lock.Unlock(ctx)
}

// elector is a gocron.Elector. The scheduler of the leader runs all jobs.
type elector struct {
	tenure atomic.Pointer[context.Context] // the last one; nil = none yet
}

var _ gocron.Elector = (*elector)(nil)

var errNotLeader = errors.New("another scheduler is the leader")

// lead contends until ctx ends or the Client is closed.
func (e *elector) lead(ctx context.Context, c *client.Client, mutex string) error {
	return c.Lead(ctx, mutex, func(ctx context.Context) error {
		e.tenure.Store(&ctx)
		<-ctx.Done()
		return nil
	})
}

// IsLeader implements gocron.Elector. It returns nil if this process is the leader. Err of the
// tenure reads the clock, so the result is right even after a freeze of the process.
func (e *elector) IsLeader(context.Context) error {
	if tenure := e.tenure.Load(); tenure == nil || (*tenure).Err() != nil {
		return errNotLeader
	}
	return nil
}
