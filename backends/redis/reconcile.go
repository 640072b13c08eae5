package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Reconciling repairs the state of a mutex in the background. No client's request triggers it.

const (
	// reconcileInterval is the longest time between two reconciliations of a mutex that somebody
	// waits for here.
	reconcileInterval = 10 * time.Second
	// retryAfter is how long after a request with an unknown outcome its mutex is reconciled.
	retryAfter = 300 * time.Millisecond
	// refusedAfter is how long after a lasting error a mutex is reconciled again.
	refusedAfter = 2 * time.Second
	// maxRestored is how many waiters of a mutex one reconciliation restores.
	maxRestored = 64
)

// legacyRelease is a release notice of Simba up to 3.1, which wakes one contender.
type legacyRelease struct{ contender, releaser string }

// maxLegacyReleases bounds the legacy releases of one reconciliation. There are more only if it is
// late.
const maxLegacyReleases = 16

// reconcileSoon reconciles a mutex in the background. If it is being reconciled already, it is
// reconciled again afterwards. So goroutines do not pile up during an outage.
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
			b.schedule.bringForward(mutex, time.Now())
		}
	})
}

// reconcile ends the orphans of a mutex, and runs the reconcile script for the waiters here. The
// script hands the mutex off if it is free. Then reconcile schedules the mutex' next
// reconciliation.
func (b *Backend) reconcile(ctx context.Context, mutex string) {
	if err := b.endOrphans(ctx, mutex); err != nil {
		b.retryReconcile(mutex, err)
		return
	}
	waiting := b.waiters.Waiting(mutex)
	waiting = waiting[:min(len(waiting), maxRestored)]
	if len(waiting) > 0 && !b.subs.reachable(mutex) {
		waiting = nil // no grant could reach them; onConfirmed reconciles the mutex again
	}
	s, err := b.runReconcile(ctx, mutex, "", waiting)
	if err != nil {
		b.retryReconcile(mutex, err)
		return
	}
	if err := b.subscriptionError(mutex); err != nil {
		b.waiters.Fail(mutex, err)
	}
	waiters, _ := s.readExtra()
	switch {
	case b.waiters.Count(mutex) > 0:
		at := time.Now().Add(reconcileInterval)
		if due := s.reconcileAt(); s.due != 0 && due.Before(at) {
			at = due
		}
		b.schedule.bringForward(mutex, at)
	case s.due != 0 && (waiters > 0 || b.subs.hasSubscriber(mutex)):
		b.schedule.set(mutex, s.reconcileAt(), s.now)
	}
}

// runReconcile runs the reconcile script. The script restores the queue entries of tickets that
// have lost theirs. It also handles the legacy releases of the mutex. If renotify names a polling
// contender, the script repeats the notice of its reservation.
func (b *Backend) runReconcile(ctx context.Context, mutex, renotify string, waiting []*proxy.Ticket) (*reply, error) {
	args := make([]any, 0, 3+6*len(waiting))
	var restoring []*queueEntry
	b.mu.Lock()
	releases := b.legacyReleases[mutex]
	args = append(args, "1", renotify, len(releases))
	for _, r := range releases {
		args = append(args, r.contender, r.releaser)
	}
	delete(b.legacyReleases, mutex)
	for _, t := range waiting {
		r, e := t.Request, entryOf(t)
		if e.score == "" || e.restoreStopped {
			continue // the ticket's first or last request is running
		}
		e.restoring++
		restoring = append(restoring, e)
		args = append(args, r.Contender, e.score, r.TTL.Milliseconds(), r.Transition.Milliseconds(),
			proxy.Binding(b.id, r.Session), e.ticket)
	}
	b.mu.Unlock()
	s, err := b.ask(ctx, mutex, reconcileScript, args...)
	b.mu.Lock()
	for _, e := range restoring {
		e.restoring--
		if e.restoring == 0 && e.restoringEnded != nil {
			close(e.restoringEnded)
			e.restoringEnded = nil
		}
	}
	if err != nil {
		b.keepReleasesLocked(mutex, releases)
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// keepReleasesLocked keeps the legacy releases of a failed reconciliation for the next one, in
// front of those that arrived meanwhile.
func (b *Backend) keepReleasesLocked(mutex string, earlier []legacyRelease) {
	if all := slices.Concat(earlier, b.legacyReleases[mutex]); len(all) > 0 {
		b.legacyReleases[mutex] = all[max(0, len(all)-maxLegacyReleases):]
	}
}

// retryReconcile schedules a mutex again after it could not be reconciled. If the error is lasting,
// the waits for the mutex end with that error.
func (b *Backend) retryReconcile(mutex string, err error) {
	refusal := (*simba.MisconfiguredError)(nil)
	if !errors.As(err, &refusal) {
		b.schedule.bringForward(mutex, time.Now().Add(retryAfter))
		return
	}
	b.waiters.Fail(mutex, refusal)
	b.schedule.bringForward(mutex, time.Now().Add(refusedAfter))
}

// subscriptionError returns a lasting error that keeps the node of a mutex from delivering grants
// to this server, nil if there is none.
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
