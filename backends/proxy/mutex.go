package proxy

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

// mutexState is what this server knows of a mutex while a client here waits for it, subscribes to
// it or has a request for it. It has the queue of this server's waiters.
//
// Only the goroutine that holds the field lock sends steps of the mutex, except for reads that
// decide nothing, and for renewals that overtake (see Engine.overtake).
type mutexState struct {
	mutex string
	lock  priorityLock

	// Guarded by lock.
	seen   State     // as last read or written
	seenAt time.Time // when
	known  bool      // seen is set

	// Guarded by Engine.mu.
	refs          int
	subscribed    bool // a client subscribes to the mutex's channels
	watched       bool // Watcher.Watch was called
	orphans       []orphan
	entries       []*entry // the queue, in order
	index         map[string]*entry
	reserved      *entry // the polling waiter that the mutex is reserved for
	reservedUntil time.Time
	leaseEnd      time.Time // of the last known lease
	lastOwner     string
	freedBy       string    // the owner whose release is not announced yet; "" = none
	refreshAt     time.Time // when to read the mutex if anybody needs it; zero = not set
	stale         bool      // read it at once, since it may have changed
	timer         *time.Timer
	running       bool // runDue is running, and will set the timer
	hasSlot       bool // a background refresh runs, and has a slot of Engine.lockedSlots
	overtaken     bool // a renewal has overtaken the step that is out
}

// ref returns the state of a mutex and keeps it until unref.
func (e *Engine) ref(mutex string) *mutexState {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.mutexes[mutex]
	if m == nil {
		m = &mutexState{mutex: mutex, lock: newPriorityLock()}
		e.mutexes[mutex] = m
	}
	m.refs++
	return m
}

// unref ends the effect of one ref. It sets the timer, and deletes a state that is not needed.
func (e *Engine) unref(m *mutexState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.refs--
	e.armLocked(m)
	if m.refs > 0 || len(m.entries) > 0 || m.subscribed || len(m.orphans) > 0 || m.reserved != nil {
		return
	}
	m.disarm()
	delete(e.mutexes, m.mutex)
	if m.watched {
		e.watcher.Unwatch(m.mutex)
	}
}

// watchLocked begins to watch a mutex. The caller reads the mutex afterwards, so that it misses no
// change.
func (e *Engine) watchLocked(m *mutexState) {
	if e.watcher != nil && !m.watched {
		m.watched = true
		e.watcher.Watch(m.mutex)
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

// owns reports whether a contender owns the mutex, as far as this server knows.
func (e *Engine) owns(m *mutexState, contender string) bool {
	e.mu.Lock()
	last, end := m.lastOwner, m.leaseEnd
	e.mu.Unlock()
	if last != "" {
		return last == contender && time.Now().Before(end)
	}
	event, ok := e.eventLog.Last(m.mutex)
	return ok && event.Kind == simba.EventAcquired && event.Owner == contender
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
		if !isLocked(err) || ctx.Err() != nil {
			return err
		}
	}
}

// step runs one step of a mutex, which may wait for a lock in the store. If the mutex is known to
// be locked, the step needs a slot. The caller holds m.lock, or overtakes.
func (e *Engine) step(ctx context.Context, m *mutexState, do func() error) error {
	e.mu.Lock()
	needs := e.locked[m.mutex] && !m.hasSlot
	e.mu.Unlock()
	if needs {
		free, err := e.lockedSlot(ctx)
		if err != nil {
			return err
		}
		defer free()
	}
	err := do()
	e.mu.Lock()
	defer e.mu.Unlock()
	if isLocked(err) {
		e.locked[m.mutex] = true
	} else if err == nil {
		delete(e.locked, m.mutex)
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
