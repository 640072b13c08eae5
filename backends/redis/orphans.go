package redis

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// orphan is a ticket whose wait has ended, but whose queue entry or tenure may still be in Redis:
// the request to end it failed. Backend.reconcile tries again.
type orphan struct {
	contender string
	ticket    string
	// until is when the server stops trying. By then any tenure of the ticket has ended. The queue
	// entry may live longer. If it gets a grant then, the server hands the grant off.
	until time.Time
}

func (b *Backend) orphanTicket(t *proxy.Ticket) {
	b.addOrphan(t.Request.Mutex, orphan{t.Request.Contender, waitOf(t).ticket,
		time.Now().Add(t.Request.TTL + t.Request.Transition + time.Minute)})
}

func (b *Backend) addOrphan(mutex string, o orphan) {
	b.mu.Lock()
	b.orphans[mutex] = append(b.orphans[mutex], o)
	b.mu.Unlock()
	b.schedule.bringForward(mutex, time.Now().Add(retryAfter))
}

func (b *Backend) orphanedMutexes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.orphans))
}

// endOrphans ends the orphans of a mutex in Redis. After an error, the remaining ones stay orphans.
func (b *Backend) endOrphans(ctx context.Context, mutex string) error {
	b.mu.Lock()
	list := b.orphans[mutex]
	delete(b.orphans, mutex)
	b.mu.Unlock()
	for i, o := range list {
		if time.Now().After(o.until) {
			continue
		}
		if _, err := b.ask(ctx, mutex, leaveScript, o.contender, o.ticket, "gone"); err != nil {
			b.mu.Lock()
			b.orphans[mutex] = append(b.orphans[mutex], list[i:]...)
			b.mu.Unlock()
			return err
		}
	}
	return nil
}
