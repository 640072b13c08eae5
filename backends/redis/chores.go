package redis

import (
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// chore is a request about a contender that has to be made before the next reconciliation of its
// mutex. Backend.reconcile makes it, and tries again after an error.
type chore struct {
	contender string
	// ticket names an orphan: a ticket whose wait has ended, but whose queue entry or tenure may
	// still be in Redis, because the request to end it failed. "" = the notice of the
	// contender's reservation may have been lost, and is repeated.
	ticket string
	// until is when the server stops trying to end an orphan. By then any tenure of the ticket has
	// ended. The queue entry may live longer. If it gets a grant then, the server hands the grant
	// off.
	until time.Time
}

func (b *Backend) orphanTicket(t *proxy.Ticket) {
	b.addChore(t.Request.Mutex, chore{t.Request.Contender, waitOf(t).ticket,
		time.Now().Add(t.Request.TTL + t.Request.Transition + time.Minute)}, retryAfter)
}

// addChore adds a chore, unless there is the same one, and reconciles the mutex after a delay.
func (b *Backend) addChore(mutex string, c chore, delay time.Duration) {
	b.mu.Lock()
	if !slices.Contains(b.chores[mutex], c) {
		b.chores[mutex] = append(b.chores[mutex], c)
	}
	b.mu.Unlock()
	b.schedule.bringForward(time.Now().Add(delay), mutex)
}

// repair does the chores of a mutex, and then runs the reconcile script for the waiters here. After
// an error, the remaining chores stay. A chore that repeats a notice also restores the queue
// entries of the waiters, since they may be before the contender that gets the notice.
func (b *Backend) repair(ctx context.Context, mutex string, waiting []*proxy.Ticket) (s *reply, err error) {
	b.mu.Lock()
	list := b.chores[mutex]
	delete(b.chores, mutex)
	b.mu.Unlock()
	for i, c := range list {
		switch {
		case c.ticket != "" && time.Now().Before(c.until):
			_, err = b.ask(ctx, mutex, leaveScript, c.contender, c.ticket, "gone")
		case c.ticket == "" && b.Waiters.Find(mutex, c.contender) == nil && b.Notices.Subscribed(simba.ContenderChannel(mutex, c.contender)):
			_, err = b.runReconcile(ctx, mutex, c.contender, waiting)
		}
		if err != nil {
			b.mu.Lock()
			b.chores[mutex] = append(b.chores[mutex], list[i:]...)
			b.mu.Unlock()
			return nil, err
		}
	}
	return b.runReconcile(ctx, mutex, "", waiting)
}
