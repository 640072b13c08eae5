package registry

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// localLock is a reentrant lock that the Holders of this process share. It also has the last
// attempt to lock the mutex at the server. Registry.mu guards it.
type localLock struct {
	key  string
	lock *Lock // the handle that Obtain returns

	pins int           // number of users (calls in progress, holder, attempt); 0 = may be forgotten
	used time.Time     // when pins became 0
	at   *list.Element // the element in Registry.idle; nil = pins is not 0

	holder *Holder   // nil = free
	count  int       // how often the holder has locked; 0 = its first Lock is in progress
	busy   bool      // a call between enter and exit is in progress; only this call sends requests
	queue  []*waiter // first come, first served

	attempt *attempt // the last attempt; nil = none, or it is over
}

// waiter is a call that waits in enter.
type waiter struct {
	h       *Holder
	granted chan struct{} // closed when h is granted the localLock
}

func (e *localLock) admitsLocked(h *Holder) bool {
	return !e.busy && (e.holder == nil || e.holder == h)
}

// enter begins a call of h that may send requests. For each localLock, only one call is in progress
// between enter and exit. If enter has to wait for another call or another holder, and wait is
// false, enter returns errElsewhere. first reports whether h does not have the lock yet.
func (r *Registry) enter(ctx context.Context, l *Lock, h *Holder, wait bool) (e *localLock, first bool, err error) {
	r.mu.Lock()
	if r.isClosedLocked() {
		r.mu.Unlock()
		return nil, false, client.ErrClosed
	}
	e = r.pinLocked(l.key, l)
	switch {
	case e.admitsLocked(h):
		e.holder, e.busy, first = h, true, e.count == 0
		r.mu.Unlock()
		return e, first, nil
	case !wait:
		r.unpinLocked(e)
		r.mu.Unlock()
		return nil, false, errElsewhere
	}
	w := &waiter{h: h, granted: make(chan struct{})}
	e.queue = append(e.queue, w)
	r.mu.Unlock()
	select {
	case <-w.granted:
	case <-ctx.Done():
		err = ctx.Err()
	case <-r.closed:
		err = client.ErrClosed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		return e, e.count == 0, nil
	}
	if i := slices.Index(e.queue, w); i >= 0 {
		e.queue = slices.Delete(e.queue, i, i+1)
	} else { // w was granted the local lock just now
		e.busy = false
		e.grantNextLocked()
	}
	r.unpinLocked(e)
	return nil, false, err
}

// exit ends a call that enter has begun. locked says whether the call has locked for its holder.
func (r *Registry) exit(e *localLock, locked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.busy = false
	if locked {
		e.count++
	}
	if e.count == 0 && e.attempt != nil { // not acquired, or unlocked during the call
		e.attempt.run.Stop()
	}
	e.grantNextLocked()
	if !locked || e.count > 1 { // the pin of the first Lock stays until the last Unlock
		r.unpinLocked(e)
	}
}

// unlock undoes one Lock of h. If it was the last, unlock stops the attempt and returns it.
func (r *Registry) unlock(l *Lock, h *Holder) (*attempt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.locks[l.key]
	if e == nil || e.count == 0 || e.holder != h {
		return nil, fmt.Errorf("%w at %s", ErrNotHolder, l.mutex)
	}
	e.count--
	if e.count > 0 {
		return nil, nil
	}
	defer r.unpinLocked(e)
	if e.busy { // another call of h is locking again; exit stops the attempt if that call fails
		return nil, nil
	}
	a := e.attempt
	_ = a.own.Err() // ends the ownership with ErrLost if the lease has ended
	a.run.Stop()
	e.grantNextLocked()
	return a, nil
}

// grantNextLocked grants the local lock to the first waiter in the queue that may have it.
func (e *localLock) grantNextLocked() {
	if e.count == 0 {
		e.holder = nil
	}
	i := slices.IndexFunc(e.queue, func(w *waiter) bool { return e.admitsLocked(w.h) })
	if i >= 0 {
		w := e.queue[i]
		e.queue = slices.Delete(e.queue, i, i+1)
		e.holder, e.busy = w.h, true
		close(w.granted)
		return
	}
	e.dropAttemptLocked()
}

// dropAttemptLocked forgets the attempt if it is over and no holder needs it.
func (e *localLock) dropAttemptLocked() {
	if e.attempt != nil && e.count == 0 && !e.busy && e.attempt.over() {
		e.attempt = nil
	}
}
