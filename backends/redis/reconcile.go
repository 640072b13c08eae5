package redis

import (
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Looks: what a server does for a mutex by itself.

const (
	// patience is how long a mutex that someone here waits for goes without a look.
	reconcileInterval = 10 * time.Second
	// maxAssert is how many waiters of a mutex are made sure of in one look.
	maxRestored = 64
)

// wakeup is what a release by Simba up to 3.1 has published: it wakes one contender.
type wakeup struct{ contender, releaser string }

// maxWakeups is how many of them a look takes in; there are more only if looks are late.
const maxWakeups = 16

// attendSoon looks after a mutex whose time has come.
func (b *Backend) reconcileSoon(mutex string) {
	b.mu.Lock()
	_, busy := b.reconciling[mutex]
	b.reconciling[mutex] = busy
	b.mu.Unlock()
	if busy { // one at a time, or an outage piles them up
		return
	}
	b.background(mutex, func(ctx context.Context) {
		b.reconcile(ctx, mutex)
		b.mu.Lock()
		again := b.reconciling[mutex]
		delete(b.reconciling, mutex)
		b.mu.Unlock()
		if again {
			b.schedule.advance(mutex, time.Now())
		}
	})
}

// attend looks after a mutex: ends waits that Redis has yet to hear of, makes sure
// that who waits here has a place, and lets the mutex be handed on if it is free.
func (b *Backend) reconcile(ctx context.Context, mutex string) {
	if err := b.endOrphans(ctx, mutex); err != nil {
		b.retry(mutex, err)
		return
	}
	waiting := b.waiters.Waiting(mutex)
	waiting = waiting[:min(len(waiting), maxRestored)]
	if len(waiting) > 0 && !b.subs.hears(mutex) {
		waiting = nil // grants could not reach them; their turn is when it hears again
	}
	s, err := b.runReconcile(ctx, mutex, "", waiting)
	if err != nil {
		b.retry(mutex, err)
		return
	}
	if err := b.subscriptionError(mutex); err != nil {
		b.waiters.Fail(mutex, err)
	}
	waiters, _ := s.extra.(int64)
	switch {
	case b.waiters.Count(mutex) > 0:
		at := time.Now().Add(reconcileInterval)
		if due := s.reconcileAt(); s.due != 0 && due.Before(at) {
			at = due
		}
		b.schedule.advance(mutex, at)
	case s.due != 0 && (waiters > 0 || b.subs.hasSubscriber(mutex)):
		b.schedule.set(mutex, s.reconcileAt(), s.now)
	}
}

// assert looks at a mutex and gives tickets a place that have none.
func (b *Backend) runReconcile(ctx context.Context, mutex, again string, waiting []*proxy.Ticket) (*state, error) {
	args := make([]any, 0, 3+6*len(waiting))
	var busy []*queueEntry
	b.mu.Lock()
	wakeups := b.wakeups[mutex]
	args = append(args, "1", again, len(wakeups))
	for _, w := range wakeups {
		args = append(args, w.contender, w.releaser)
	}
	delete(b.wakeups, mutex)
	for _, t := range waiting {
		r, p := t.Request, entryOf(t)
		if p.score == "" || p.ended {
			continue // its first request is under way
		}
		p.restoring++
		busy = append(busy, p)
		args = append(args, r.Contender, p.score, r.TTL.Milliseconds(), r.Transition.Milliseconds(),
			b.session(r.Session), p.ticket)
	}
	b.mu.Unlock()
	s, err := b.ask(ctx, mutex, reconcileScript, args...)
	b.mu.Lock()
	for _, p := range busy {
		p.restoring--
		if p.restoring == 0 && p.idle != nil {
			close(p.idle)
			p.idle = nil
		}
	}
	if err != nil {
		b.keepWakeupsLocked(mutex, wakeups) // for the next look
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// addressLocked puts earlier wake-ups of a mutex before those that the next look takes in.
func (b *Backend) keepWakeupsLocked(mutex string, earlier []wakeup) {
	if all := slices.Concat(earlier, b.wakeups[mutex]); len(all) > 0 {
		b.wakeups[mutex] = all[max(0, len(all)-maxWakeups):]
	}
}

// exorcise ends the waits of a mutex' ghosts. On an error some are left.
func (b *Backend) endOrphans(ctx context.Context, mutex string) error {
	b.mu.Lock()
	list := b.orphans[mutex]
	delete(b.orphans, mutex)
	b.mu.Unlock()
	for i, g := range list {
		if time.Now().After(g.until) {
			continue
		}
		if _, err := b.ask(ctx, mutex, leaveScript, g.contender, g.ticket, "gone"); err != nil {
			b.mu.Lock()
			b.orphans[mutex] = append(b.orphans[mutex], list[i:]...)
			b.mu.Unlock()
			return err
		}
	}
	return nil
}
