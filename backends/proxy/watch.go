package proxy

import (
	"context"
	"maps"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	cleanUpInterval = 10 * time.Second
	// tableInterval is how often all held mutexes are read while a client subscribes to a pattern
	// that can match channels of mutexes.
	tableInterval = time.Second
)

// Subscribed implements simba.Backend. It returns nil only after it has read the mutex, so that
// this server announces every later change.
func (e *Engine) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	switch {
	case e.Stopped():
		return 0, simba.ErrStopped
	case pattern:
		return 0, e.subscribedPattern(ctx, channel)
	}
	mutex, contender, ok := simba.ParseChannel(channel)
	if !ok || e.store.CheckNames(mutex, contender) != nil {
		return 0, nil // not a channel of a mutex
	}
	m := e.ref(mutex)
	defer e.unref(m)
	if contender != "" && !e.markReachable(m, contender) && e.queue == nil {
		return 0, nil
	}
	e.mu.Lock()
	e.watchLocked(m)
	if contender != "" && e.queue != nil {
		if m.listeners == nil {
			m.listeners = make(map[string]bool)
		}
		m.listeners[contender] = true
		if m.seen.Next == contender {
			m.seen.Next = "" // so that it is notified again
		}
		e.queue.Listen(mutex)
	}
	m.subscribed = m.subscribed || contender == ""
	m.stale = true // if the request fails, another read follows
	e.mu.Unlock()
	return 0, e.request(ctx, mutex, "", e.refreshAndHandOff)
}

// markReachable records that a polling waiter has subscribed. An earlier notice may have gone to a
// subscription that has ended, so the waiter may be notified again. markReachable returns false if
// the contender does not wait.
func (e *Engine) markReachable(m *mutexState, contender string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := m.index[contender]
	if w == nil {
		return false
	}
	w.notifiedAt = 0
	if m.reserved == w {
		m.reserved = nil
	}
	return true
}

// subscribedPattern watches all mutexes if the pattern can match channels of mutexes.
func (e *Engine) subscribedPattern(ctx context.Context, pattern string) error {
	if mutexes, events := simba.MayMatchChannels(pattern); !mutexes && !events {
		return nil
	}
	e.mu.Lock()
	e.patterns[pattern] = struct{}{}
	if e.queue != nil && e.allListed == nil {
		e.allListed = make(chan struct{})
		e.queue.WatchAll(false)
	}
	all := e.allListed
	e.mu.Unlock()
	if e.queue == nil {
		return e.serve(ctx, e.readTable)
	}
	return e.serve(ctx, func(ctx context.Context) error {
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// maintain watches all mutexes for pattern subscribers, and cleans up, until the engine is closed.
func (e *Engine) maintain() {
	for cleaned := time.Now(); Sleep(e.Stopping, tableInterval, nil); {
		if err := e.fail(e.within(e.Stopping, e.options.Timeout, e.readTable)); err != nil {
			e.Log.Debug("cannot read all mutexes", "err", err)
		}
		if time.Since(cleaned) >= cleanUpInterval {
			cleaned = time.Now()
			e.cleanUp()
		}
	}
}

// cleanUp forgets what has ended. It also asks whether the store answers, and if waiters need a
// grant, whether it accepts grants. Without that, a waiter would get the error only at the end of
// the owner's lease.
func (e *Engine) cleanUp() {
	e.mu.Lock()
	for pattern := range e.patterns {
		if !e.Notices.SubscribedPattern(pattern) {
			delete(e.patterns, pattern)
		}
	}
	if len(e.patterns) == 0 && e.allListed != nil {
		e.allListed = nil
		e.queue.WatchAll(true)
	}
	for mutex, m := range e.mutexes {
		if m.subscribed && !e.Notices.Subscribed(simba.MutexChannel(mutex)) && !e.Notices.Subscribed(simba.EventChannel(mutex)) {
			m.subscribed = false
			m.refs++
			e.unrefLocked(m)
		}
		if m.byPattern && len(e.patterns) == 0 {
			m.byPattern = false
			m.refs++
			e.unrefLocked(m)
		}
		for c := range m.listeners {
			if !e.Notices.Subscribed(simba.ContenderChannel(mutex, c)) {
				delete(m.listeners, c)
				m.refs++
				e.unrefLocked(m)
			}
		}
	}
	for mutex, b := range e.sessions { // the connection asks for a lease with a token by itself
		if b.Token == 0 && time.Since(b.Since) > b.TTL+b.Transition {
			delete(e.sessions, mutex)
		}
	}
	for mutex := range e.begun {
		if last, ok := e.Events.Last(mutex); !ok || last.Kind != simba.EventAcquired {
			delete(e.begun, mutex)
		}
	}
	e.mu.Unlock()
	if err := e.fail(e.within(e.Stopping, e.options.Timeout, e.store.Ping)); err != nil && !e.Stopped() {
		e.Log.Warn("cannot query the store", "err", err)
	}
	if e.Waiters.Len() > 0 {
		e.Checks.Again()
	}
}

// readTable reads all held mutexes and announces the changes since the last call, if there are
// pattern subscribers. The first call announces nothing. A tenure of another server that begins and
// ends between two calls stays unnoticed.
func (e *Engine) readTable(ctx context.Context) error {
	if err := e.tableLock.lock(ctx, false); err != nil {
		return err
	}
	defer e.tableLock.unlock()
	e.mu.Lock()
	patterns := len(e.patterns)
	e.mu.Unlock()
	if patterns == 0 || e.queue != nil {
		e.table = nil
		return nil
	}
	list, err := e.store.Scan(ctx, 0, maxScanKey, 0)
	if err != nil {
		return err
	}
	before, now := e.table, make(map[string]State, len(list))
	for _, s := range list {
		now[s.Mutex] = s.State
	}
	e.table = now
	if before == nil {
		return nil
	}
	all := maps.Clone(before)
	maps.Copy(all, now)
	for mutex := range all {
		was, is := before[mutex], now[mutex]
		if (was.Token != is.Token || was.Owner != is.Owner) && !e.announceFrom(ctx, mutex, was) {
			now[mutex] = was // the next call tries again
		}
	}
	return nil
}

// announceFrom reads a mutex and announces what has changed since the state was, unless this server
// has announced that already. If m.lock is held for long, it returns false.
func (e *Engine) announceFrom(ctx context.Context, mutex string, was State) bool {
	m := e.ref(mutex)
	defer e.unref(m)
	return e.briefly(ctx, m, func(ctx context.Context, m *mutexState) error {
		e.mu.Lock()
		if !m.known {
			m.seen, m.known = was, true
		}
		e.mu.Unlock()
		return e.refreshAndHandOff(ctx, m)
	}) == nil
}
