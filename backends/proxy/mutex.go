package proxy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// mutexState is what this server knows of a mutex while a client here waits for it, subscribes to
// it or has a request for it. It has the queue of this server's waiters.
//
// Only the goroutine that holds the field lock sends steps of the mutex, except for reads that
// decide nothing, and for renewals of the owner (see Engine.Guard).
type mutexState struct {
	mutex    string
	lock     priorityLock
	renewing atomic.Bool // a renewal runs beside the other steps
	locked   atomic.Bool // another transaction had locked the mutex at the last step

	// Guarded by Engine.mu. Only the holder of lock begins another tenure in seen.
	seen          State     // as last read, written or announced
	seenAt        time.Time // when; zero = announced, so its windows are unknown
	known         bool      // seen is not empty
	refs          int
	subscribed    bool // a client subscribes to the mutex's channels
	byPattern     bool // of a Queue: a client subscribes to a pattern
	watched       bool
	requeuing     bool            // of a Queue: requeueAll will run
	listeners     map[string]bool // of a Queue: contenders that subscribe to their own channel here
	orphans       []orphan
	entries       []*entry // the queue, in order
	index         map[string]*entry
	reserved      *entry // the polling waiter that the mutex is reserved for
	reservedUntil time.Time
	lastOwner     string
	freedBy       string    // the owner whose release is not announced yet; "" = none
	refreshAt     time.Time // when to read the mutex if anybody needs it
	stale         bool      // read it at once, since it may have changed
	timer         *time.Timer
	running       bool // runDue is running, and will set the timer
}

// leaseEnd returns the end of the last known lease; zero = no lease is running.
func (m *mutexState) leaseEnd() (end time.Time) {
	if m.seen.Live {
		end = m.seenAt.Add(m.seen.left())
	}
	return end
}

// ref returns the state of a mutex and keeps it until unref. A store without a queue watches the mutex
// meanwhile. Since the caller reads the mutex afterwards, it misses no change.
func (e *Engine) ref(mutex string) *mutexState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refLocked(mutex)
}

func (e *Engine) refLocked(mutex string) *mutexState {
	m := e.mutexes[mutex]
	if m == nil {
		m = &mutexState{mutex: mutex, lock: newPriorityLock(), index: make(map[string]*entry), refreshAt: time.Now().Add(e.refreshDelay(State{}))}
		m.seen, m.known = e.announcedLocked(mutex)
		m.timer = time.AfterFunc(e.options.Timeout, func() { e.runDue(m) })
		e.mutexes[mutex] = m
		if e.queue == nil {
			m.watched = true
			e.store.Watch(mutex)
		}
	}
	m.refs++
	return m
}

func (e *Engine) unref(m *mutexState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unrefLocked(m)
}

// unrefLocked ends the effect of one ref. It sets the timer, and deletes a state that is not needed.
func (e *Engine) unrefLocked(m *mutexState) {
	m.refs--
	e.armLocked(m)
	if m.refs > 0 || len(m.entries) > 0 || m.subscribed || m.byPattern || len(m.listeners) > 0 || len(m.orphans) > 0 || m.reserved != nil {
		return
	}
	m.timer.Stop()
	delete(e.mutexes, m.mutex)
	if m.watched {
		e.store.Unwatch(m.mutex)
	}
}

// watchLocked watches a mutex of a Queue that a client waits for or subscribes to. The next refresh
// finds what has changed since it was read.
func (e *Engine) watchLocked(m *mutexState) {
	if !m.watched {
		m.watched, m.stale = true, true
		e.store.Watch(m.mutex)
	}
}

// changed implements Hooks.Changed.
func (e *Engine) changed(mutex string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := e.mutexes
	if mutex != "" {
		changed = map[string]*mutexState{mutex: e.mutexes[mutex]}
	}
	for _, m := range changed {
		if m != nil {
			m.stale = true
			e.armLocked(m)
		}
	}
}

// owns reports whether a contender owns the mutex, as this server has last seen it.
func (e *Engine) owns(m *mutexState, contender string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return m.seen.Live && m.seen.Owner == contender
}

// do runs a request of a contender while it holds m.lock. If another transaction has locked the
// mutex in the store, do lets other requests go first, those of the owner before all others, and
// runs the request again until ctx ends.
func (e *Engine) do(ctx context.Context, m *mutexState, contender string, request func() error) error {
	for {
		if err := m.lock.lock(ctx, e.owns(m, contender)); err != nil {
			return err
		}
		e.expireEntries(m)
		err := request()
		m.lock.unlock()
		if other := new(Elsewhere); errors.As(err, &other) {
			if err = other.Ask(ctx); err != nil {
				return err
			}
		} else if !isLocked(err) || ctx.Err() != nil {
			return err
		}
	}
}

// step runs one step of a mutex, which may wait for a lock in the store. If the mutex is known to
// be locked, the step needs a slot. The caller holds m.lock, or renews.
func (e *Engine) step(ctx context.Context, m *mutexState, do func() error) error {
	if m.locked.Load() {
		free, err := e.lockedSlot(ctx)
		if err != nil {
			return err
		}
		defer free()
	}
	err := do()
	if err == nil || isLocked(err) {
		m.locked.Store(err != nil)
	}
	return err
}

// lockedSlot takes a slot for steps of a locked mutex. The caller frees it.
func (e *Engine) lockedSlot(ctx context.Context) (free func(), err error) {
	select {
	case e.lockedSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, errLocked
	}
	began := time.Now()
	return func() {
		if left := lockedStep - time.Since(began); ctx.Err() != nil && left > 0 {
			time.AfterFunc(left, func() { <-e.lockedSlots }) // a step may still wait in the store
		} else {
			<-e.lockedSlots
		}
	}, nil
}

// lockedStep is about how long a step waits in the store for a lock.
const lockedStep = time.Second
