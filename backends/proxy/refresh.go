package proxy

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	// refreshTimeout bounds a background refresh, so that the next one comes soon after an outage.
	refreshTimeout = 2 * time.Second
	// retryPause is the pause after a refresh that failed, or that left orphans.
	retryPause = 250 * time.Millisecond
	// queuePoll is the shortest time until a mutex is read again whose owner, or whose next waiter,
	// belongs to another server.
	queuePoll = 25 * time.Millisecond
	// idleDelay is the time until a mutex of a Queue is read again that nobody owns or waits for.
	idleDelay = 10 * time.Second
	// backgroundLockTimeout is how long background work waits for the lock of one mutex. It is
	// short because other mutexes wait for the same work.
	backgroundLockTimeout = 100 * time.Millisecond
)

// refreshDelay returns how long to wait before the mutex is read again. It uses the contention
// timing of Simba's JDBC contenders: from 200 ms before the end of the lease to 1 s after it. The
// time is random, so that servers do not all read at once. If a read is too early, the next one
// follows soon. (Simba, "Contention Mechanics".)
func (e *Engine) refreshDelay(s State) time.Duration {
	d := rand.N(time.Second)
	switch {
	case e.queue != nil && !s.Live && s.Next == "": // a notice follows
		return idleDelay
	case s.Live && s.Elsewhere && s.Owner != "" && s.left() == 0: // its server is dead, cut off or late
		return retryPause
	case s.Live && s.Elsewhere: // no notice follows if the owner renews, or if the next waiter becomes the owner
		return max(queuePoll, s.left()/2)
	case s.Live:
		if s.TransitionAt > s.TTLAt {
			d = rand.N(1200*time.Millisecond) - 200*time.Millisecond
		}
		d += s.left()
	}
	if e.options.Poll > 0 {
		d = min(d, e.options.Poll)
	}
	return max(0, d)
}

// dueLocked returns when runDue is to run next; zero = never.
func (e *Engine) dueLocked(m *mutexState) (due time.Time) {
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	needed := e.queue != nil && len(m.entries) > 0 || m.subscribed || m.byPattern || len(m.listeners) > 0 || len(m.orphans) > 0 || e.Waiters.Count(m.mutex) > 0
	for _, w := range e.pollingLocked(m) {
		if w != m.reserved {
			sooner(w.expiresAt)
		}
		needed = needed || e.Notices.Subscribed(simba.ContenderChannel(m.mutex, w.contender))
	}
	if m.reserved != nil {
		sooner(m.reservedUntil)
	}
	if needed {
		if sooner(m.refreshAt); m.stale {
			due = time.Now()
		}
	}
	return due
}

func (e *Engine) armLocked(m *mutexState) {
	if m.running {
		return
	}
	m.timer.Stop()
	if due := e.dueLocked(m); !e.Stopped() && !due.IsZero() {
		m.timer.Reset(max(0, time.Until(due)))
	}
}

// runDue expires queue entries, and refreshes the mutex if it is time. It runs on the timer's
// goroutine.
func (e *Engine) runDue(m *mutexState) {
	e.mu.Lock()
	if m.running || e.mutexes[m.mutex] != m || !e.Begin() {
		e.mu.Unlock()
		return
	}
	m.refs++
	m.running = true
	now := time.Now()
	refresh := m.stale || m.reserved != nil && !now.Before(m.reservedUntil) || !now.Before(m.refreshAt)
	e.mu.Unlock()
	defer e.Done()
	defer e.unref(m)
	e.expireEntries(m)
	var err error
	if refresh {
		err = e.within(e.Stopping, min(e.options.Timeout, refreshTimeout), func(ctx context.Context) error { return e.backgroundRefresh(ctx, m) })
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m.running = false
	if err != nil {
		m.stale, m.refreshAt = false, time.Now().Add(retryPause)
	}
}

// backgroundRefresh is handOffIfFree after a refresh. It takes a refresh slot before m.lock, so
// that no request for the mutex waits for the slot. Other mutexes need the slot. So
// backgroundRefresh gives up if m.lock is held for long. It needs no refresh slot for a mutex that
// is known to be locked in the store: its steps take a slot of their own.
func (e *Engine) backgroundRefresh(ctx context.Context, m *mutexState) (err error) {
	if away := e.Away(); away != nil {
		return away
	}
	if !m.locked.Load() {
		select {
		case e.refreshSlots <- struct{}{}:
			defer func() { <-e.refreshSlots }()
		case <-ctx.Done():
			return errBusy
		}
	}
	err = e.fail(e.briefly(ctx, m, e.refreshAndHandOff))
	if isRefusal(err) {
		e.Waiters.Fail(m.mutex, err)
	}
	if err != nil && !e.Stopped() {
		e.Log.Debug("cannot refresh a mutex", "mutex", m.mutex, "err", err)
	}
	return err
}

// briefly runs background work while it holds m.lock. It gives up if m.lock is held for long.
func (e *Engine) briefly(ctx context.Context, m *mutexState, work func(context.Context, *mutexState) error) error {
	err := e.within(ctx, backgroundLockTimeout, func(short context.Context) error { return m.lock.lock(short, e.queue != nil) })
	if err != nil {
		return err
	}
	defer m.lock.unlock()
	return work(ctx, m)
}

// refreshAndHandOff reads the mutex, and hands it off if it is free. The caller holds m.lock.
func (e *Engine) refreshAndHandOff(ctx context.Context, m *mutexState) error {
	s, err := e.look(ctx, m)
	if err != nil {
		return err
	}
	return e.handOffIfFree(ctx, m, s)
}

// refresh reads the mutex for a reply, announces the changes, and reconciles orphans. It grants a free
// mutex to a waiter that other servers already report as the owner. The caller holds m.lock.
func (e *Engine) refresh(ctx context.Context, m *mutexState) (State, error) {
	s, err := e.readState(ctx, m, e.queue != nil)
	if err == nil && s.NextOwns && !s.Live {
		s, err = e.serveNext(ctx, m, s, "")
	}
	return s, err
}

// look is refresh for background work. A Queue may return an older state, since a notice follows.
func (e *Engine) look(ctx context.Context, m *mutexState) (State, error) {
	return e.readState(ctx, m, false)
}

func (e *Engine) readState(ctx context.Context, m *mutexState, settled bool) (State, error) {
	e.mu.Lock()
	if !settled { // a settled read is that of a request, which serves no waiter
		m.stale = false
	}
	settled = settled || len(m.orphans) > 0
	e.mu.Unlock()
	sent := time.Now()
	s, err := e.read(ctx, m, settled)
	if err == nil {
		s, err = e.digest(ctx, m, s, sent, settled)
	}
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		m.refreshByLocked(time.Now().Add(retryPause)) // it may have been stale
	}
	return s, err
}

// refreshByLocked makes the next refresh due at t, or earlier.
func (m *mutexState) refreshByLocked(t time.Time) {
	if t.Before(m.refreshAt) {
		m.refreshAt = t
	}
}

// digest is the rest of refresh, for a state that a step has returned. sent is when the step was
// sent. settled says that the state is settled, so that orphans can be reconciled.
func (e *Engine) digest(ctx context.Context, m *mutexState, s State, sent time.Time, settled bool) (_ State, err error) {
	if !settled && s.Owner != "" && !s.Live {
		// A step that renewed the lease in time may not have committed yet. If another transaction
		// keeps the mutex locked for long, the state counts as it was read, unless the transaction
		// may be a renewal of this server.
		was, renewing := s, m.renewing.Load()
		s, err = e.read(ctx, m, true)
		if isLocked(err) && !renewing {
			s, err = was, nil
		}
		if err != nil {
			return s, err
		}
	}
	if settled {
		if changed, err := e.reconcile(ctx, m, s); err != nil {
			return s, err
		} else if changed {
			return e.refresh(ctx, m)
		}
	}
	e.observe(m, s, sent)
	if s.Live && !s.Elsewhere { // its windows are only upper bounds
		e.wakeOwner(m, Lease{Owner: s.Owner, Token: s.Token, TTL: s.ttlLeft(), Transition: s.left() - s.ttlLeft(), Since: sent})
	}
	return s, nil
}

// handOffIfFree hands off a free mutex, or announces it as free if there is no next waiter. If the
// mutex has changed since it was read, the timer reads it again. The caller holds m.lock.
func (e *Engine) handOffIfFree(ctx context.Context, m *mutexState, s State) error {
	if e.queue != nil {
		_, err := e.serveNext(ctx, m, s, "")
		return err
	}
	if s.Live || e.reservationLeft(m) > 0 {
		return nil
	}
	_, done, err := e.handOff(ctx, m, handoff{from: From{Revision: s.Revision}})
	if err == nil && !done {
		e.changed(m.mutex)
	}
	return err
}
