package mysql

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	// refreshTimeout bounds a background refresh, so that the next one comes soon after an outage.
	refreshTimeout = 2 * time.Second
	// firstRetry and lastRetry are the shortest and the longest pause after failed refreshes.
	firstRetry  = 250 * time.Millisecond
	lastRetry   = time.Second
	orphanRetry = 250 * time.Millisecond
)

// refreshDelay returns how long to wait before the row is read again. It uses the contention timing
// of Simba's JDBC contenders: from 200 ms before the end of the lease to 1 s after it. The time is
// random, so that servers do not all read at once. If a read is too early, the next one follows
// soon. (Simba, "Contention Mechanics".)
func (b *Backend) refreshDelay(r row) time.Duration {
	d := time.Duration(0)
	if r.live {
		d = r.left()
	}
	if r.live && r.transitionAt > r.ttlAt {
		d += rand.N(1200*time.Millisecond) - 200*time.Millisecond
	} else {
		d += rand.N(time.Second)
	}
	if b.poll > 0 {
		d = min(d, b.poll)
	}
	return max(0, d)
}

// dueLocked returns when runDue is to run next; zero = never.
func (b *Backend) dueLocked(m *mutexState) (due time.Time) {
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	watched := m.subscribed || len(m.orphans) > 0 || b.waiters.Count(m.mutex) > 0
	for _, e := range b.pollingLocked(m) {
		if e != m.reserved {
			sooner(e.expiresAt)
		}
		watched = watched || b.notices.Subscribed(simba.ContenderChannel(m.mutex, e.contender))
	}
	if m.reserved != nil {
		sooner(m.reservedUntil)
	}
	if watched {
		if m.refreshAt.IsZero() {
			m.refreshAt = time.Now().Add(b.refreshDelay(row{}))
		}
		sooner(m.refreshAt)
	}
	return due
}

func (b *Backend) armLocked(m *mutexState) {
	if m.running {
		return
	}
	due := b.dueLocked(m)
	if b.closed || due.IsZero() {
		m.disarm()
		return
	}
	d := max(0, time.Until(due))
	if m.timer == nil {
		m.timer = time.AfterFunc(d, func() { b.runDue(m) })
		return
	}
	m.timer.Reset(d)
}

func (m *mutexState) disarm() {
	if m.timer != nil {
		m.timer.Stop()
	}
}

// runDue expires queue entries, and refreshes the row if it is time. It runs on the timer's
// goroutine.
func (b *Backend) runDue(m *mutexState) {
	b.mu.Lock()
	if b.closed || m.running || b.mutexes[m.mutex] != m {
		b.mu.Unlock()
		return
	}
	b.running.Add(1)
	m.refs++
	m.running = true
	now := time.Now()
	reservationOver := m.reserved != nil && !now.Before(m.reservedUntil)
	refresh := reservationOver || !m.refreshAt.IsZero() && !now.Before(m.refreshAt)
	b.mu.Unlock()
	defer b.running.Done()
	defer b.unref(m)
	defer b.doneRunning(m)
	b.expireEntries(m)
	if !refresh {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, min(b.timeout, refreshTimeout))
	defer cancel()
	if err := b.backgroundRefresh(ctx, m); err != nil && b.ctx.Err() == nil {
		err = b.fail(err) // fail may replace the pool's connections
		if refusal := (*simba.MisconfiguredError)(nil); errors.As(err, &refusal) {
			b.waiters.Fail(m.mutex, refusal)
		}
		b.log.Debug("cannot refresh a mutex", "mutex", m.mutex, "err", err)
		b.mu.Lock()
		if isConflict(err) || errors.Is(err, errBusy) {
			m.refreshAt = time.Now().Add(firstRetry) // a locked row or a busy mutex is no outage
		} else {
			m.failures++
			m.refreshAt = time.Now().Add(min(lastRetry, firstRetry<<min(m.failures, 8)))
		}
		b.mu.Unlock()
	}
}

// backgroundRefresh is refreshAndHandOff for the timer. It takes a refresh slot before m.lock, so
// that no request for the mutex waits for the slot. Other mutexes need the slot. So
// backgroundRefresh gives up if the row is locked, or m.lock is held for long.
func (b *Backend) backgroundRefresh(ctx context.Context, m *mutexState) error {
	if b.store.waits.isLocked(m.mutex) {
		return errLocked
	}
	select {
	case b.refreshSlots <- struct{}{}:
		defer func() { <-b.refreshSlots }()
	case <-ctx.Done():
		return errBusy
	}
	short, cancel := context.WithTimeout(ctx, backgroundLockTimeout)
	defer cancel()
	if err := m.lock.lock(short, false); err != nil {
		return err
	}
	defer m.lock.unlock()
	return b.refreshAndHandOffWithLock(withoutLockWait(ctx), m)
}

func (b *Backend) doneRunning(m *mutexState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.running = false
}

func (b *Backend) refreshSoon(m *mutexState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.refreshAt = time.Now()
}

func (b *Backend) refreshAndHandOff(ctx context.Context, m *mutexState) error {
	if err := m.lock.lock(ctx, false); err != nil {
		return err
	}
	defer m.lock.unlock()
	return b.refreshAndHandOffWithLock(ctx, m)
}

func (b *Backend) refreshAndHandOffWithLock(ctx context.Context, m *mutexState) error {
	s, err := b.refresh(ctx, m, b.hasBlocked(m))
	if err != nil {
		return err
	}
	return b.handOffIfFree(ctx, m, s)
}

func (b *Backend) hasBlocked(m *mutexState) bool { return b.waiters.Count(m.mutex) > 0 }

// refresh reads the row, announces the changes, and reconciles orphans. If create is true, it
// inserts a missing row. The caller holds m.lock.
func (b *Backend) refresh(ctx context.Context, m *mutexState, create bool) (row, error) {
	read := b.store.read
	if create {
		read = b.store.readOrInsert
	}
	hasOrphans := b.hasOrphans(m)
	sent := time.Now()
	s, err := b.readWithToken(ctx, m.mutex, hasOrphans, read)
	if err != nil {
		return s, err
	}
	b.observe(m, s)
	if !hasOrphans {
		b.wakeOwner(m, s, sent)
		return s, nil
	}
	changed, err := b.reconcile(ctx, m, s)
	if err == nil && changed {
		sent = time.Now()
		s, err = b.readWithToken(ctx, m.mutex, false, read)
	}
	if err == nil {
		b.wakeOwner(m, s, sent)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if soon := time.Now().Add(orphanRetry); len(m.orphans) > 0 && soon.Before(m.refreshAt) {
		m.refreshAt = soon
	}
	return s, err
}

// wakeOwner wakes the blocked waiter of the row's owner, if there is one. sent is when the read
// began.
func (b *Backend) wakeOwner(m *mutexState, s row, sent time.Time) {
	if s.live {
		b.wakeBlocked(m, lease{owner: s.owner, token: s.token, ttl: s.ttlLeft(), transition: s.left() - s.ttlLeft(), since: sent})
	}
}

// handOffIfFree hands off a free mutex, or announces it as free if there is no next waiter. The
// caller holds m.lock.
func (b *Backend) handOffIfFree(ctx context.Context, m *mutexState, s row) error {
	for range attempts {
		if s.live || b.reservationLeft(m) > 0 {
			return nil
		}
		if e, _ := b.nextWaiter(m, holder{version: s.version}); e == nil {
			b.announceFree(m)
			return nil
		}
		held, _, err := b.handOff(ctx, m, handoff{from: holder{version: s.version}})
		if err != nil || held || b.reservationLeft(m) > 0 {
			return err
		}
		if s, err = b.refresh(ctx, m, b.hasBlocked(m)); err != nil {
			return err
		}
	}
	return errKeepsChanging
}
