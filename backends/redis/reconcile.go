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

// reconcile repairs a mutex for the waiters here, and hands it off if it is free. Then it schedules
// the next reconciliation of the mutex.
func (b *Backend) reconcile(ctx context.Context, mutex string) {
	waiting := b.Waiters.Waiting(mutex)
	waiting = waiting[:min(len(waiting), maxRestored)]
	reachable, cause := b.subs.reachable(mutex)
	if !reachable {
		waiting = nil // no grant could reach them; onConfirmed reconciles the mutex again
	}
	s, err := b.repair(ctx, mutex, waiting)
	if err != nil {
		b.retryReconcile(mutex, err)
		return
	}
	if lastingCause(cause) != nil {
		b.Waiters.Fail(mutex, b.requestError(cause))
	}
	waiters, _ := s.readExtra()
	waitsHere := b.Waiters.Count(mutex) > 0
	if waitsHere {
		b.schedule.bringForward(time.Now().Add(reconcileInterval), mutex)
	}
	switch {
	case s.due == 0:
	case waitsHere, s.due < s.ends: // renewals do not put off the end of a queue entry
		b.schedule.bringForward(s.reconcileAt(), mutex)
	case waiters > 0, b.subs.hasSubscriber(mutex):
		b.schedule.set(mutex, s.reconcileAt(), s.now)
	}
}

// runReconcile runs the reconcile script. The script restores missing queue entries of tickets, and
// handles the contender notices of the mutex. If renotify names a polling contender, the script
// repeats the notice of its reservation.
func (b *Backend) runReconcile(ctx context.Context, mutex, renotify string, waiting []*proxy.Ticket) (*reply, error) {
	args := make([]any, 0, 3+6*len(waiting))
	restored := make(chan struct{})
	defer close(restored)
	b.mu.Lock()
	notices := b.contenderNotices[mutex]
	delete(b.contenderNotices, mutex)
	args = append(args, "1", renotify, len(notices))
	for _, n := range notices {
		args = append(args, n.contender, n.releaser)
	}
	for _, t := range waiting {
		r, w := t.Request, waitOf(t)
		if w.score == "" || w.restoreStopped {
			continue // a request that begins or ends this wait is running
		}
		args = append(args, r.Contender, w.score, r.TTL.Milliseconds(), r.Transition.Milliseconds(),
			proxy.Binding(b.id, r.Session), w.ticket)
		w.restored = restored
	}
	b.mu.Unlock()
	s, err := b.ask(ctx, mutex, reconcileScript, args...)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		// The next reconciliation handles these notices before those that arrived meanwhile.
		all := slices.Concat(notices, b.contenderNotices[mutex])
		b.contenderNotices[mutex] = all[max(0, len(all)-maxContenderNotices):]
	}
	return s, err
}

// retryReconcile schedules a mutex again after a failed reconciliation. If the error is lasting,
// the waits for the mutex end with that error.
func (b *Backend) retryReconcile(mutex string, err error) {
	refusal := (*simba.MisconfiguredError)(nil)
	if !errors.As(err, &refusal) || errors.Is(err, errMaxClients) { // a connection may end soon
		b.schedule.bringForward(time.Now().Add(retryAfter), mutex)
		return
	}
	b.Waiters.Fail(mutex, refusal)
	b.schedule.bringForward(time.Now().Add(refusedAfter), mutex)
}
