package client

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"time"
)

// latch is the part of a lock that is in this process: a reentrant lock for holders, and
// what is known of the lock at the server. All is guarded by Registry.mu, but for what
// never changes.
type latch struct {
	key  string
	lock *RegistryLock // the handle that Obtain returns

	pins int           // by calls under way, by its holder, and by a pursuit; 0 = may be forgotten
	used time.Time     // when it was last unpinned
	at   *list.Element // in Registry.idle; nil = pinned

	holder *Holder // nil = free
	count  int     // how often it has locked; 0 with a holder = it is about to
	busy   bool    // a call of the holder is under way: one at a time asks the server
	queue  []*turn // those that wait for it, first come, first served

	tenure *tenure // the last at the server; nil = none that matters any more
}

// turn is a call that waits for a latch.
type turn struct {
	h       *Holder
	granted chan struct{} // closed when it has it
}

func (e *latch) admitsLocked(h *Holder) bool {
	return !e.busy && (e.holder == nil || e.holder == h)
}

// enter begins a call of h that may ask the server: until exit no other one begins. It waits for its
// turn if it is patient. first reports whether h does not have the lock yet.
func (r *Registry) enter(ctx context.Context, l *RegistryLock, h *Holder, patient bool) (e *latch, first bool, err error) {
	r.mu.Lock()
	if r.isClosedLocked() {
		r.mu.Unlock()
		return nil, false, ErrClosed
	}
	e = r.pinLocked(l.key, l)
	switch {
	case e.admitsLocked(h):
		e.holder, e.busy, first = h, true, e.count == 0
		r.mu.Unlock()
		return e, first, nil
	case !patient:
		r.unpinLocked(e)
		r.mu.Unlock()
		return nil, false, errElsewhere
	}
	t := &turn{h: h, granted: make(chan struct{})}
	e.queue = append(e.queue, t)
	r.mu.Unlock()
	select {
	case <-t.granted:
	case <-ctx.Done():
		err = ctx.Err()
	case <-r.closed:
		err = ErrClosed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		return e, e.count == 0, nil
	}
	if i := slices.Index(e.queue, t); i >= 0 {
		e.queue = slices.Delete(e.queue, i, i+1)
	} else { // it has its turn just now
		e.busy = false
		e.passLocked()
	}
	r.unpinLocked(e)
	return nil, false, err
}

// exit ends a call that has entered; locked says whether it locks.
func (r *Registry) exit(e *latch, locked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.busy = false
	if locked {
		e.count++
	}
	if e.count == 0 && e.tenure != nil { // not to be had, or unlocked in the meantime
		e.tenure.run.stop()
	}
	e.passLocked()
	if !locked || e.count > 1 { // the first pin of a holder stays until it unlocks
		r.unpinLocked(e)
	}
}

// leave undoes one Lock of h. If it was the last, it returns the tenure, which ends.
func (r *Registry) leave(l *RegistryLock, h *Holder) (*tenure, error) {
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
	if e.busy { // it is locked again at this moment: exit decides
		return nil, nil
	}
	t := e.tenure
	_ = t.own.Err() // by the clock it may be lost: that comes first
	t.run.stop()
	e.passLocked()
	return t, nil
}

// passLocked lets the next call begin that may.
func (e *latch) passLocked() {
	if e.count == 0 {
		e.holder = nil
	}
	i := slices.IndexFunc(e.queue, func(t *turn) bool { return e.admitsLocked(t.h) })
	if i >= 0 {
		t := e.queue[i]
		e.queue = slices.Delete(e.queue, i, i+1)
		e.holder, e.busy = t.h, true
		close(t.granted)
		return
	}
	e.tidyLocked()
}

// tidyLocked drops a tenure of which nothing is left.
func (e *latch) tidyLocked() {
	if e.tenure != nil && e.count == 0 && !e.busy && e.tenure.over() {
		e.tenure = nil
	}
}
