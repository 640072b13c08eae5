package registry

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/contend"
)

// errElsewhere means that another holder or process has the lock. Callers of the package do not
// get it.
var errElsewhere = errors.New("another has the lock")

// attempt is an attempt to lock a mutex at the server, and its tenure if it succeeds. Registry.mu
// guards what changes.
type attempt struct {
	run contend.Run

	own       context.Context // of the ownership; nil = not acquired yet
	lost      bool
	elsewhere bool  // by the last reply another has the lock
	renewals  int   // how often the lease has begun anew
	failures  int   // how many requests have failed
	err       error // of the last request
	final     bool  // the server refuses requests

	news chan struct{} // closed and replaced with each change
}

// over reports whether nothing of the attempt is left.
func (a *attempt) over() bool {
	select {
	case <-a.run.Gone():
		return true
	default:
		return false
	}
}

// change changes the attempt under the lock, and wakes await.
func (r *Registry) change(a *attempt, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(a.news)
	a.news = make(chan struct{})
}

// start starts an attempt to lock e at the server, by one request or until it is stopped. It
// first waits until nothing of the attempt before is left, which could still own the mutex; for
// one request, until Timeout.
func (r *Registry) start(ctx context.Context, e *localLock, once bool) (*attempt, error) {
	if err := r.awaitLast(ctx, e, once); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	if r.isClosedLocked() {
		return nil, client.ErrClosed
	}
	a := &attempt{news: make(chan struct{}), err: contend.ErrNoAnswer}
	r.attempts++ // a new id for each: a late request of an earlier attempt cannot affect this one
	cfg := contend.Config{
		Mutex: e.lock.mutex, ID: r.cfg.ID + ":" + strconv.FormatUint(r.attempts, 10), TTL: r.cfg.ExpireAfter,
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
	e.pins++ // the caller has pinned it already
	r.running++
	go func() { // Close waits for it
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

// awaitLast waits until nothing of the last attempt of e is left. It returns nil with Registry.mu
// locked.
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

// await waits until decided reports true, and returns its error. It calls decided under the lock
// with each change of a.
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
		case <-a.run.Stopping(): // the Client is closed, unless the attempt was decided
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

// acquire locks e at the server for its holder. With an error, elsewhere reports whether another
// had the lock by the last reply, and failure is the error of the last request.
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

// renew begins the lease of e's holder anew.
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
