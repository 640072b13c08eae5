package redis

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

// unsubscribeAfter is how long a channel stays subscribed after it was last wanted.
const unsubscribeAfter = 10 * time.Second

// Subscribed implements simba.Backend.
func (b *Backend) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	if b.tasks.ctx.Err() != nil {
		return 0, simba.ErrStopped
	}
	var channels []string
	var mutex, contender string
	if pattern {
		channels = b.subs.patternSubscribed(channel)
	} else if m, c, ok := simba.ParseContenderChannel(channel); ok {
		mutex, contender, channels = m, c, []string{channel}
	} else if m, ok := simba.ParseMutexChannel(channel); ok {
		mutex, channels = m, []string{channel}
	} else if m, ok := simba.ParseEventChannel(channel); ok {
		// Tenures that begin without our scripts are announced on the mutex's channel only.
		mutex, channels = m, []string{channel, simba.MutexChannel(m)}
	}
	if len(channels) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := b.subs.subscribeAndWait(ctx, channels...); err != nil {
		return 0, b.requestError(err)
	}
	if mutex == "" {
		b.subs.subscribe(contenderGlob)
		return 0, nil
	}
	b.subs.subscribeReleases(mutex)
	if contender != "" {
		_, err := b.runReconcile(ctx, mutex, contender, nil)
		return 0, err
	}
	b.schedule.bringForward(mutex, time.Now()) // to learn when its lease ends
	return 0, nil
}

// patternSubscribed notes a client's glob. It returns the server's globs that may match the same
// channels.
func (s *subscriptions) patternSubscribed(glob string) (needed []string) {
	mutexes, events := simba.MayMatchChannels(glob)
	if mutexes {
		needed = append(needed, noticeGlob)
	}
	if events {
		needed = append(needed, eventGlob)
	}
	if len(needed) > 0 {
		s.mu.Lock()
		s.patterns[glob] = time.Now()
		s.mu.Unlock()
	}
	return needed
}

// hasSubscriber reports whether a client of this server may subscribe to the notices or events of a
// mutex. If any client subscribes to a glob of such channels, hasSubscriber returns true for every
// mutex.
func (s *subscriptions) hasSubscriber(mutex string) bool {
	s.mu.Lock()
	hasPatterns := len(s.patterns) > 0
	s.mu.Unlock()
	return hasPatterns || s.b.notices.Subscribed(simba.MutexChannel(mutex)) || s.b.notices.Subscribed(simba.EventChannel(mutex))
}

// runSweeps regularly unsubscribes from channels that nobody needs, and forgets old grants.
func (b *Backend) runSweeps() {
	ticker := time.NewTicker(unsubscribeAfter)
	defer ticker.Stop()
	rotated := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-b.tasks.ctx.Done():
			return
		}
		if time.Since(rotated) > 2*b.timeout { // by now every reply has arrived
			rotated = time.Now()
			b.forgetOldGrants()
		}
		b.subs.sweep(time.Now().Add(-unsubscribeAfter))
	}
}

// sweep unsubscribes from channels that were last wanted before an instant, unless a waiter or a
// client of this server needs them.
func (s *subscriptions) sweep(before time.Time) {
	needed := s.neededChannels(before)
	for _, sub := range s.all() {
		sub.sweep(before, func(name string, pattern bool) bool {
			return name == s.serverChannel() || needed[name] || !pattern && s.b.notices.Subscribed(name)
		})
	}
}

// neededChannels returns the channels that waiters and clients of this server need, besides those
// that clients subscribe to by their names.
func (s *subscriptions) neededChannels(before time.Time) map[string]bool {
	needed := make(map[string]bool)
	if s.b.waiters.Len() > 0 {
		needed[contenderGlob] = true
	}
	for _, m := range s.b.waiters.Mutexes() {
		needed[simba.MutexChannel(m)] = true
	}
	if s.prunePatterns(before) > 0 {
		needed[noticeGlob], needed[eventGlob], needed[contenderGlob] = true, true, true
	}
	for _, sub := range s.all() {
		for _, name := range sub.names() {
			m, isEvent := simba.ParseEventChannel(name)
			if mutex, _, ok := simba.ParseContenderChannel(name); ok {
				m = mutex
			} else if !isEvent {
				m, _ = simba.ParseMutexChannel(name)
			}
			if m != "" && s.b.notices.Subscribed(name) {
				needed[simba.MutexChannel(m)], needed[contenderGlob] = true, true
			}
		}
	}
	return needed
}

// prunePatterns forgets a glob if no client subscribes to it any more, and the last subscription
// was before an instant. It returns how many globs remain.
func (s *subscriptions) prunePatterns(before time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for glob, at := range s.patterns {
		if at.Before(before) && !s.b.notices.SubscribedPattern(glob) {
			delete(s.patterns, glob)
		}
	}
	return len(s.patterns)
}
