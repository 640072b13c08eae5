package registry

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/contend"
)

// errElsewhere means that another holder or process has the lock. Users of the package never get
// this error.
var errElsewhere = errors.New("another has the lock")

// attempt is an attempt to lock a mutex at the server. If it succeeds, it lasts through the tenure.
// It is over when no request of it is in progress any more, not even the release. Registry.mu
// guards all fields but run.
type attempt struct {
	run contend.Run

	own       context.Context // the ownership context; nil = not acquired yet
	lost      bool
	elsewhere bool  // in the last reply another contender owns the mutex or is next
	renewals  int   // how often the lease was renewed
	failures  int   // how many requests have failed
	err       error // the error of the last request
	final     bool  // it is useless to retry after err

	news chan struct{} // closed and replaced with each change
}

func (a *attempt) over() bool {
	select {
	case <-a.run.Gone():
		return true
	default:
		return false
	}
}

// change locks Registry.mu and calls f, which changes the attempt a. Then it wakes await.
func (r *Registry) change(a *attempt, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(a.news)
	a.news = make(chan struct{})
}

// start starts an attempt to lock e at the server. If once is true, the attempt sends one request,
// else it lasts until it is stopped. The previous attempt may still own the mutex. So start first
// waits until that attempt is over. If once is true, it waits at most for the Timeout of the
// Client.
func (r *Registry) start(ctx context.Context, e *localLock, once bool) (*attempt, error) {
	if err := r.awaitLast(ctx, e, once); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	if r.isClosedLocked() {
		return nil, client.ErrClosed
	}
	a := &attempt{news: make(chan struct{}), err: contend.ErrNoAnswer}
	r.attempts++ // for a new id, so that late requests of earlier attempts do not affect this one
	cfg := contend.Config{
		Mutex: e.lock.mutex, ID: r.cfg.ID + ":" + strconv.FormatUint(r.attempts, 10), TTL: r.cfg.ExpireAfter, DefaultTTL: r.defaultLease,
		Once: once, NoQueue: once || r.cfg.Mode == Spin,
		Hooks: contend.Hooks{
			Acquired: func(own context.Context) { r.change(a, func() { a.own, a.err = own, nil }) },
			Renewed:  func() { r.change(a, func() { a.renewals, a.err = a.renewals+1, nil }) },
			Waiting:  func() { r.change(a, func() { a.elsewhere, a.err = true, nil }) },
			Lost: func() {
				a.run.Stop() // an attempt is one tenure
				r.change(a, func() { a.lost = true })
			},
			Failed: func(err error, final, _ bool) {
				r.change(a, func() { a.elsewhere, a.failures, a.err, a.final = false, a.failures+1, err, final })
			},
		},
	}
	if r.cfg.Mode == Spin {
		cfg.Every = r.cfg.SpinEvery
	}
	var err error
	if a.run, err = contend.Start(r.c, cfg); err != nil {
		return nil, err
	}
	e.attempt = a
	e.pins++ // not pinLocked: the caller has pinned e, so e is in r.locks
	r.running++
	go func() { // Close waits for this goroutine
		<-a.run.Gone()
		r.mu.Lock()
		defer r.mu.Unlock()
		e.dropAttemptLocked()
		r.unpinLocked(e)
		if r.running--; r.running == 0 && r.isClosedLocked() {
			close(r.over)
		}
	}()
	return a, nil
}

// awaitLast waits until the last attempt of e is over. If it returns nil, it has locked
// Registry.mu. If once is true, it waits at most for the Timeout of the Client.
func (r *Registry) awaitLast(ctx context.Context, e *localLock, once bool) error {
	var enough <-chan time.Time
	if once {
		t := time.NewTimer(contend.Timeout(r.c))
		defer t.Stop()
		enough = t.C
	}
	r.mu.Lock()
	for e.attempt != nil && !e.attempt.over() {
		gone := e.attempt.run.Gone()
		r.mu.Unlock()
		select {
		case <-gone:
		case <-ctx.Done():
			return ctx.Err()
		case <-enough:
			return contend.ErrNoAnswer
		case <-r.closed:
			return client.ErrClosed
		}
		r.mu.Lock()
	}
	return nil
}

// await waits until decided returns true, and returns the error of decided. It calls decided at
// once and after each change of the attempt a, with Registry.mu locked.
func (r *Registry) await(ctx context.Context, a *attempt, decided func() (bool, error)) error {
	for {
		r.mu.Lock()
		ok, err := decided()
		news := a.news
		r.mu.Unlock()
		if ok {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.closed:
			return client.ErrClosed
		case <-a.run.Stopping(): // the attempt is decided, or the Client is closed
			r.mu.Lock()
			defer r.mu.Unlock()
			if ok, err := decided(); ok {
				return err
			}
			if r.isClosedLocked() {
				return client.ErrClosed
			}
			return contend.ErrClientClosed
		}
	}
}

// acquire locks e at the server for the holder of e. failure is the error of the last request.
// elsewhere reports whether another process had the lock in the last reply.
func (r *Registry) acquire(ctx context.Context, e *localLock, once bool) (elsewhere bool, failure, err error) {
	a, err := r.start(ctx, e, once)
	if err != nil {
		return false, contend.ErrNoAnswer, err
	}
	err = r.await(ctx, a, func() (bool, error) {
		switch {
		case a.own != nil:
			return true, nil
		case a.elsewhere && once:
			return true, errElsewhere
		case a.failures > 0 && (a.final || once):
			return true, a.err
		}
		return false, nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return a.elsewhere, a.err, err
}

// renew renews the lease of the holder of e. failure is the error of the last request.
func (r *Registry) renew(ctx context.Context, e *localLock, once bool) (failure, err error) {
	r.mu.Lock()
	a := e.attempt
	renewals, failures := a.renewals, a.failures
	r.mu.Unlock()
	a.run.Renew()
	err = r.await(ctx, a, func() (bool, error) {
		switch {
		case a.lost || a.own.Err() != nil:
			return true, client.ErrLost
		case a.renewals > renewals:
			return true, nil
		case a.failures > failures && (a.final || once):
			return true, a.err
		}
		return false, nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return a.err, err
}
