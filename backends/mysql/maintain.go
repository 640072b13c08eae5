package mysql

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	cleanUpInterval = 10 * time.Second
	// tableInterval is how often the whole table is read while a client subscribes to a pattern
	// that can match channels of mutexes.
	tableInterval = time.Second
	// backgroundLockTimeout is how long background work waits for the lock of one mutex. It is
	// short because other mutexes wait for the same work.
	backgroundLockTimeout = 100 * time.Millisecond
)

// maintain watches the table and cleans up until the backend is closed.
func (b *Backend) maintain() {
	defer b.running.Done()
	cleanUp := time.NewTicker(cleanUpInterval)
	defer cleanUp.Stop()
	watch := time.NewTicker(tableInterval)
	defer watch.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-cleanUp.C:
			b.cleanUp()
		case <-watch.C:
			b.watchTable()
		}
	}
}

// cleanUp drops subscriptions and sessions that have ended. It also reads the database's clock, and
// checks that the database accepts what blocked waiters need.
func (b *Backend) cleanUp() {
	var unsubscribed []*mutexState
	b.mu.Lock()
	for pattern := range b.patterns {
		if !b.notices.SubscribedPattern(pattern) {
			delete(b.patterns, pattern)
		}
	}
	for mutex, m := range b.mutexes {
		if m.subscribed && !b.notices.Subscribed(simba.MutexChannel(mutex)) && !b.notices.Subscribed(simba.EventChannel(mutex)) {
			m.subscribed = false
			m.refs++
			unsubscribed = append(unsubscribed, m)
		}
	}
	b.mu.Unlock()
	for _, m := range unsubscribed {
		b.unref(m)
	}
	ctx, cancel := context.WithTimeout(b.ctx, b.timeout)
	defer cancel()
	err := b.store.readClock(ctx)
	if refusal := b.checkForBlocked(ctx); err == nil {
		err = refusal
	}
	if err == nil {
		err = b.cleanUpSessions(ctx)
	}
	if err != nil && b.ctx.Err() == nil {
		_ = b.fail(err) // fail may replace the pool's connections
		b.log.Warn("cannot query the database", "err", err)
	}
}

// checkForBlocked ends all waits with an error if the database refuses updates of the table, which
// every grant needs. Without it, a waiter would get the error only at the end of the owner's lease.
func (b *Backend) checkForBlocked(ctx context.Context) error {
	mutexes := b.waiters.Mutexes()
	if len(mutexes) == 0 {
		return nil
	}
	err := b.store.tryUpdate(ctx)
	if f := b.endpoint.fault(err); f != nil {
		for _, mutex := range mutexes {
			b.waiters.Fail(mutex, &simba.MisconfiguredError{Engine: "mysql", Err: f})
		}
	}
	return err
}
