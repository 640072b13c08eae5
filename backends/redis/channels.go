package redis

import (
	"context"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Which channels somebody here needs.

// lingering is how long a channel stays subscribed after it was wanted last.
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
		// Tenures that begin without our scripts are announced on the mutex' channel only.
		mutex, channels = m, []string{channel, simba.MutexChannel(m)}
	}
	if len(channels) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := b.subs.listen(ctx, channels...); err != nil {
		return 0, b.unavailable(err)
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
	b.schedule.advance(mutex, time.Now()) // to learn when its lease ends
	return 0, nil
}

// patternWanted notes a client's glob and returns the globs of ours that it needs.
func (t *subscriptions) patternSubscribed(glob string) (needed []string) {
	fixed := glob
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		fixed = glob[:i]
	}
	for _, g := range []string{noticeGlob, eventGlob} {
		prefix := strings.TrimSuffix(g, "*")
		if strings.HasPrefix(prefix, fixed) || strings.HasPrefix(fixed, prefix) {
			needed = append(needed, g)
		}
	}
	if len(needed) > 0 {
		t.mu.Lock()
		t.patterns[glob] = time.Now()
		t.mu.Unlock()
	}
	return needed
}

// sweep gives up the channels that nobody here needs any more, now and then.
func (b *Backend) sweep() {
	ticker := time.NewTicker(unsubscribeAfter)
	defer ticker.Stop()
	turned := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-b.tasks.ctx.Done():
			return
		}
		if time.Since(turned) > 2*b.timeout { // no reply is taken in so late
			turned = time.Now()
			b.mu.Lock()
			b.delivered.turn()
			b.acknowledged.turn()
			b.mu.Unlock()
		}
		b.subs.sweep(time.Now().Add(-unsubscribeAfter))
	}
}

func (t *subscriptions) sweep(before time.Time) {
	needed := make(map[string]bool)
	if t.b.waiters.Len() > 0 {
		needed[contenderGlob] = true
	}
	for _, m := range t.b.waiters.Mutexes() {
		needed[simba.MutexChannel(m)] = true
	}
	t.mu.Lock()
	for glob, at := range t.patterns {
		if at.Before(before) && !t.b.notices.SubscribedPattern(glob) {
			delete(t.patterns, glob)
			continue
		}
		needed[noticeGlob], needed[eventGlob], needed[contenderGlob] = true, true, true
	}
	t.mu.Unlock()
	for _, r := range t.all() {
		for _, name := range r.names() {
			m, isEvent := simba.ParseEventChannel(name)
			if c, _, ok := simba.ParseContenderChannel(name); ok {
				m = c
			} else if !isEvent {
				m, _ = simba.ParseMutexChannel(name)
			}
			if m != "" && t.b.notices.Subscribed(name) {
				needed[simba.MutexChannel(m)], needed[contenderGlob] = true, true
			}
		}
	}
	for _, r := range t.all() {
		r.sweep(before, func(name string, pattern bool) bool {
			return name == t.serverChannel() || needed[name] || !pattern && t.b.notices.Subscribed(name)
		})
	}
}

// interested reports whether someone here wants to know when a mutex' lease ends.
func (t *subscriptions) hasSubscriber(mutex string) bool {
	t.mu.Lock()
	any := len(t.patterns) > 0
	t.mu.Unlock()
	return any || t.b.notices.Subscribed(simba.MutexChannel(mutex)) || t.b.notices.Subscribed(simba.EventChannel(mutex))
}
