package mysql

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	// sweepEvery is how often the backend drops what nobody needs any more.
	cleanUpInterval = 10 * time.Second
	// followEvery is how often the table is read as a whole while someone subscribes
	// to a pattern that can match the channels of mutexes.
	tableInterval = time.Second
	// gatePatience is how long one mutex may hold up the reading of the table, and the
	// looks at others.
	backgroundLockTimeout = 100 * time.Millisecond
)

// keep runs until the backend is closed. It follows the table while there are
// patterns, drops what nobody needs, and keeps the reading of the database's clock
// fresh.
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

// sweep drops what nobody needs any more.
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
		_ = b.fail(err) // for its effect on the pool
		b.log.Warn("cannot ask the database", "err", err)
	}
}

// checkForBlocked ends all waits by an error if the database refuses what each of them
// needs in the end. Otherwise they would learn it when their leases in front end.
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
