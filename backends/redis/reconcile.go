package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Reconciling: what a server does for a mutex that no request asks for.

const (
	// reconcileInterval is the longest time between two reconciliations of a mutex that somebody
	// waits for here.
	reconcileInterval = 10 * time.Second
	// retryAfter is when a mutex is reconciled after a request whose outcome is unknown.
	retryAfter = 300 * time.Millisecond
	// refusedAfter is when a mutex is reconciled again after Redis has refused to.
	refusedAfter = 2 * time.Second
	// maxRestored is how many waiters of a mutex one reconciliation restores.
	maxRestored = 64
)

// wakeup is a release notice of Simba up to 3.1, which wakes one contender.
type wakeup struct{ contender, releaser string }

// maxWakeups bounds the wakeups of one reconciliation. There are more only if it is late.
const maxWakeups = 16

// reconcileSoon reconciles a mutex in the background. If that is being done already, the mutex is
// reconciled once more afterwards: an outage would otherwise pile up goroutines.
func (b *Backend) reconcileSoon(mutex string) {
	b.mu.Lock()
	_, busy := b.reconciling[mutex]
	b.reconciling[mutex] = busy
	b.mu.Unlock()
	if busy {
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

// reconcile ends the orphans of a mutex, and runs the reconcile script for the waiters here. The
// script hands the mutex off if it is free. Then reconcile schedules the next time.
func (b *Backend) reconcile(ctx context.Context, mutex string) {
	if err := b.endOrphans(ctx, mutex); err != nil {
		b.retryReconcile(mutex, err)
		return
	}
	waiting := b.waiters.Waiting(mutex)
	waiting = waiting[:min(len(waiting), maxRestored)]
	if len(waiting) > 0 && !b.subs.reachable(mutex) {
		waiting = nil // no grant could reach them; onConfirmed reconciles once more
	}
	s, err := b.runReconcile(ctx, mutex, "", waiting)
	if err != nil {
		b.retryReconcile(mutex, err)
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

// runReconcile runs the reconcile script: it restores the queue entries of tickets that have lost
// theirs, and takes the wakeups of the mutex into account. If renotify names a polling contender,
// the script repeats the notice of its reservation.
func (b *Backend) runReconcile(ctx context.Context, mutex, renotify string, waiting []*proxy.Ticket) (*state, error) {
	args := make([]any, 0, 3+6*len(waiting))
	var restoring []*queueEntry
	b.mu.Lock()
	wakeups := b.wakeups[mutex]
	args = append(args, "1", renotify, len(wakeups))
	for _, w := range wakeups {
		args = append(args, w.contender, w.releaser)
	}
	delete(b.wakeups, mutex)
	for _, t := range waiting {
		r, e := t.Request, entryOf(t)
		if e.score == "" || e.restoreStopped {
			continue // its first request is under way, or its last
		}
		e.restoring++
		restoring = append(restoring, e)
		args = append(args, r.Contender, e.score, r.TTL.Milliseconds(), r.Transition.Milliseconds(),
			b.session(r.Session), e.ticket)
	}
	b.mu.Unlock()
	s, err := b.ask(ctx, mutex, reconcileScript, args...)
	b.mu.Lock()
	for _, e := range restoring {
		e.restoring--
		if e.restoring == 0 && e.idle != nil {
			close(e.idle)
			e.idle = nil
		}
	}
	if err != nil {
		b.keepWakeupsLocked(mutex, wakeups)
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// keepWakeupsLocked keeps wakeups of a failed reconciliation for the next one, in front of those
// that arrived meanwhile.
func (b *Backend) keepWakeupsLocked(mutex string, earlier []wakeup) {
	if all := slices.Concat(earlier, b.wakeups[mutex]); len(all) > 0 {
		b.wakeups[mutex] = all[max(0, len(all)-maxWakeups):]
	}
}

// retryReconcile schedules a mutex again after it could not be reconciled. If the error lasts until
// an operator acts, the waits for the mutex end with it.
func (b *Backend) retryReconcile(mutex string, err error) {
	refusal := (*simba.MisconfiguredError)(nil)
	if !errors.As(err, &refusal) {
		b.schedule.advance(mutex, time.Now().Add(retryAfter))
		return
	}
	b.waiters.Fail(mutex, refusal)
	b.schedule.advance(mutex, time.Now().Add(refusedAfter))
}

// subscriptionError returns the lasting error because of which the node of a mutex delivers no
// grants to this server, nil if there is none.
func (b *Backend) subscriptionError(mutex string) error {
	sub := b.subs.subscriberForKey(endedContext, simba.MutexChannel(mutex))
	if sub == nil || sub.confirmed(b.subs.serverChannel()) {
		return nil
	}
	if err := sub.err(); err != nil && lasting(err) != nil {
		return b.requestError(err)
	}
	return nil
}
