package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Reconciling repairs the state of a mutex. It mostly runs in the background, at the times in
// Backend.schedule. Owner, Check and the subscription to a contender's channel run the same script
// at once.

const (
	// reconcileInterval is the longest time between two reconciliations of a mutex that somebody
	// waits for here.
	reconcileInterval = 10 * time.Second
	// retryAfter is the time from a failed request about a mutex to the reconciliation of the
	// mutex.
	retryAfter = 300 * time.Millisecond
	// refusedAfter is the time from a lasting error to the next reconciliation of the mutex.
	refusedAfter = 2 * time.Second
	// maxRestored is how many waiters of a mutex one reconciliation restores.
	maxRestored = 64
)

// contenderNotice is a release notice on the channel of one contender, by Simba up to 3.1 or by a
// script of ours.
type contenderNotice struct{ contender, releaser string }

// maxContenderNotices bounds the contender notices of one reconciliation. More notices arrive only
// if the reconciliation is late.
const maxContenderNotices = 16

// reconcileSoon reconciles a mutex in the background. If a reconciliation of the mutex is running,
// the next one begins after it. So goroutines do not pile up during an outage.
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
			b.schedule.bringForward(time.Now(), mutex)
		}
	})
}

// reconcile does the chores of a mutex. Then it runs the reconcile script for the waiters here. The script hands the mutex off if it is free.
// Last, reconcile schedules the next reconciliation of the mutex.
func (b *Backend) reconcile(ctx context.Context, mutex string) {
	if err := b.doChores(ctx, mutex); err != nil {
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
		b.schedule.bringForward(at, mutex)
	case s.due != 0 && s.due < s.ends: // renewals do not put off the end of a queue entry
		b.schedule.bringForward(s.reconcileAt(), mutex)
	case s.due != 0 && (waiters > 0 || b.subs.hasSubscriber(mutex)):
		b.schedule.set(mutex, s.reconcileAt(), s.now)
	}
}

// runReconcile runs the reconcile script. The script restores missing queue entries of tickets, and
// handles the contender notices of the mutex. If renotify names a polling contender, the script
// repeats the notice of its reservation.
func (b *Backend) runReconcile(ctx context.Context, mutex, renotify string, waiting []*proxy.Ticket) (*reply, error) {
	args := make([]any, 0, 3+6*len(waiting))
	var restoring []*localWait
	b.mu.Lock()
	notices := b.contenderNotices[mutex]
	args = append(args, "1", renotify, len(notices))
	for _, n := range notices {
		args = append(args, n.contender, n.releaser)
	}
	delete(b.contenderNotices, mutex)
	for _, t := range waiting {
		r, w := t.Request, waitOf(t)
		if w.score == "" || w.restoreStopped {
			continue // a request that begins or ends this wait is running
		}
		w.restoring++
		restoring = append(restoring, w)
		args = append(args, r.Contender, w.score, r.TTL.Milliseconds(), r.Transition.Milliseconds(),
			b.binding(r.Session), w.ticket)
	}
	b.mu.Unlock()
	s, err := b.ask(ctx, mutex, reconcileScript, args...)
	b.mu.Lock()
	for _, w := range restoring {
		w.restoring--
		if w.restoring == 0 && w.restoringEnded != nil {
			close(w.restoringEnded)
			w.restoringEnded = nil
		}
	}
	if err != nil {
		b.keepNoticesLocked(mutex, notices)
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// keepNoticesLocked keeps the contender notices of a failed reconciliation for the next one, in
// front of those that arrived meanwhile.
func (b *Backend) keepNoticesLocked(mutex string, earlier []contenderNotice) {
	if all := slices.Concat(earlier, b.contenderNotices[mutex]); len(all) > 0 {
		b.contenderNotices[mutex] = all[max(0, len(all)-maxContenderNotices):]
	}
}

// retryReconcile schedules a mutex again after a failed reconciliation. If the error is lasting,
// the waits for the mutex end with that error.
func (b *Backend) retryReconcile(mutex string, err error) {
	refusal := (*simba.MisconfiguredError)(nil)
	if !errors.As(err, &refusal) || errors.Is(err, errMaxClients) { // a connection may end soon
		b.schedule.bringForward(time.Now().Add(retryAfter), mutex)
		return
	}
	b.waiters.Fail(mutex, refusal)
	b.schedule.bringForward(time.Now().Add(refusedAfter), mutex)
}

// subscriptionError returns a lasting error that keeps the node of a mutex from delivering grants
// to this server, nil if there is none.
func (b *Backend) subscriptionError(mutex string) error {
	sub := b.subs.subscriberForKey(endedContext, simba.MutexChannel(mutex))
	if sub == nil || sub.confirmed(b.subs.serverChannel()) {
		return nil
	}
	if err := sub.err(); err != nil && lastingCause(err) != nil {
		return b.requestError(err)
	}
	return nil
}
