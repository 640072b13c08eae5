package client

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// errElsewhere is inside only: another has the lock.
var errElsewhere = errors.New("another has it")

// tenure is a lock at the server, or the attempt to get it. What changes is guarded by
// Registry.mu.
type tenure struct {
	run *pursuit

	own       *ownership // nil = not acquired yet
	lost      bool
	elsewhere bool  // the last answer: another has it
	renewals  int   // how often its lease has begun anew
	failures  int   // how many requests have failed
	err       error // of the last request
	final     bool  // the server refuses it

	news chan struct{} // closed, and replaced, with each change
}

func (t *tenure) over() bool { return t.run.over() }

// attempt begins to ask the server for a lock, once or until it is stopped. It waits until
// nothing is left of the one before, so that its own lock is not in its way; if it is to
// ask once, as long as a request may take.
func (r *Registry) attempt(ctx context.Context, e *latch, once bool) (*tenure, error) {
	var enough <-chan time.Time
	if once {
		t := time.NewTimer(r.c.timeout)
		defer t.Stop()
		enough = t.C
	}
	r.mu.Lock()
	for e.tenure != nil && !e.tenure.over() {
		before := e.tenure.run.gone
		r.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-enough:
			return nil, errUnanswered
		case <-r.closed:
			return nil, ErrClosed
		}
		r.mu.Lock()
	}
	defer r.mu.Unlock()
	if r.isClosedLocked() {
		return nil, ErrClosed
	}
	t := &tenure{news: make(chan struct{}), err: errUnanswered}
	change := func(f func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f()
		close(t.news)
		t.news = make(chan struct{})
	}
	r.attempts++ // an id of its own: what an earlier attempt has asked for, and is late, cannot touch it
	id := r.cfg.ID + ":" + strconv.FormatUint(r.attempts, 10)
	p := r.c.newPursuit(context.Background(), terms{e.lock.mutex, id, r.cfg.ExpireAfter, 0}, hooks{
		acquired: func(o *ownership, _ State) { change(func() { t.own, t.err = o, nil }) },
		renewed:  func() { change(func() { t.renewals, t.err = t.renewals+1, nil }) },
		waiting:  func(Owner) { change(func() { t.elsewhere, t.err = true, nil }) },
		lost: func(*ownership, State) {
			t.run.stop() // it is not to be had again behind the holder's back
			change(func() { t.lost = true })
		},
		failed: func(err error, final bool) {
			change(func() { t.elsewhere, t.failures, t.err, t.final = false, t.failures+1, err, final })
		},
	})
	p.fixed, p.once, p.noQueue = true, once, once || r.cfg.Mode == Spin
	if r.cfg.Mode == Spin {
		p.every = r.cfg.SpinEvery
	}
	t.run = p
	if err := p.begin(); err != nil {
		return nil, err
	}
	e.tenure = t
	e.pins++ // by the caller it is pinned already
	r.runs++
	go func() { // Close waits for it
		<-p.gone
		r.mu.Lock()
		defer r.mu.Unlock()
		e.tidyLocked()
		r.unpinLocked(e)
		if r.runs--; r.runs == 0 && r.isClosedLocked() {
			close(r.over)
		}
	}()
	return t, nil
}

// await waits until decided, which is called under the lock with each change of t, says so.
func (r *Registry) await(ctx context.Context, t *tenure, decided func() (bool, error)) error {
	for {
		r.mu.Lock()
		ok, err := decided()
		news := t.news
		r.mu.Unlock()
		if ok {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.closed:
			return ErrClosed
		case <-t.run.quit: // the Client is closed, unless it was decided
			r.mu.Lock()
			defer r.mu.Unlock()
			if ok, err := decided(); ok {
				return err
			}
			if r.isClosedLocked() {
				return ErrClosed
			}
			return errClientClosed
		}
	}
}

// acquire locks e at the server for its holder. elsewhere reports, with an error, whether another
// had it when the server was last heard of; failure is what went wrong with the last request.
func (r *Registry) acquire(ctx context.Context, e *latch, once bool) (elsewhere bool, failure, err error) {
	t, err := r.attempt(ctx, e, once)
	if err != nil {
		return false, errUnanswered, err
	}
	err = r.await(ctx, t, func() (bool, error) {
		switch {
		case t.own != nil:
			return true, nil
		case t.elsewhere && once:
			return true, errElsewhere
		case t.failures > 0 && (t.final || once):
			return true, t.err
		}
		return false, nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.elsewhere, t.err, err
}

// renew begins the lease anew that e's holder has.
func (r *Registry) renew(ctx context.Context, e *latch, once bool) (failure, err error) {
	r.mu.Lock()
	t := e.tenure
	renewals, failures := t.renewals, t.failures
	r.mu.Unlock()
	t.run.prod()
	err = r.await(ctx, t, func() (bool, error) {
		switch {
		case t.lost || t.own.left() <= 0:
			return true, ErrLost
		case t.renewals > renewals:
			return true, nil
		case t.failures > failures && (t.final || once):
			return true, t.err
		}
		return false, nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.err, err
}
