package zookeeper

import (
	"context"
	"maps"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// unwantedCheckInterval is how often the server stops watchers that no client needs.
const unwantedCheckInterval = 10 * time.Second

// Subscribed implements simba.Backend. While a pattern that can match channels of mutexes is
// subscribed, every mutex is watched.
func (b *Backend) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	_, err := call(ctx, b, func(ctx context.Context) (none struct{}, err error) {
		var w *watcher
		mutex, contender, ok := simba.ParseChannel(channel)
		switch {
		case pattern:
			w = b.watchPattern(channel)
		case ok:
			w = b.watchChannel(mutex, contender)
		}
		if w == nil {
			return none, nil
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			err = errNoAnswer
		}
		return none, err
	})
	return 0, err
}

// watchChannel watches a mutex for a subscriber of one of its channels.
func (b *Backend) watchChannel(mutex, contender string) *watcher {
	m := b.lock(mutex)
	defer b.unlock(m)
	w := b.watch(m)
	if contender == "" {
		return w
	}
	w.listeners[contender] = struct{}{}
	if n := m.entries[contender]; n != nil && !n.reservedUntil.IsZero() {
		// The last notice may have gone to a subscription that has ended.
		b.Notices.Publish(simba.ContenderChannel(mutex, contender), simba.OfferNotice(b.lastOwner(mutex), contender))
	} else if n != nil {
		n.idle = false
	}
	w.wake()
	return w
}

// watchPattern watches every mutex, including new ones, if the pattern can match channels of mutexes.
func (b *Backend) watchPattern(pattern string) *watcher {
	if mutexes, events := simba.MayMatchChannels(pattern); !mutexes && !events {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.patterns[pattern] = struct{}{}
	if b.root == nil {
		w, known := newWatcher(b.slots[0], (*session).mutexes), false
		w.act = func(_ *session, names []string, _ time.Time) time.Duration {
			b.watchAll(w, names, known)
			known = true
			return 0
		}
		b.root = w
		b.Go(func() { b.follow(w) })
	}
	return b.root
}

// watchAll starts a watcher for each mutex, and stops those of mutexes that no longer exist. If known
// is true, a new watcher also announces its mutex's first owner.
func (b *Backend) watchAll(root *watcher, names []string, known bool) {
	listed := make(map[string]bool, len(names))
	for _, name := range names {
		listed[name] = true
	}
	b.stopWatching(func(mutex string) bool { return !listed[encodeName(mutex)] })
	var started []*watcher
	for _, name := range names {
		mutex, ok := decodeName(name)
		if !ok || simba.CheckMutex(mutex) != nil {
			continue
		}
		m := b.lock(mutex)
		if m.watcher == nil {
			w := b.watch(m)
			w.known = known
			w.byPattern.Store(true)
			started = append(started, w)
		}
		b.unlock(m)
	}
	for _, w := range started {
		select {
		case <-w.ready:
		case <-root.stop:
		case <-b.Stopping.Done():
		}
	}
}

func (b *Backend) stopUnwantedWatchers() {
	for proxy.Sleep(b.Stopping, unwantedCheckInterval, nil) {
		b.mu.Lock()
		maps.DeleteFunc(b.patterns, func(p string, _ struct{}) bool { return !b.Notices.SubscribedPattern(p) })
		if len(b.patterns) == 0 && b.root != nil {
			close(b.root.stop)
			b.root = nil
		}
		all := b.root != nil
		b.mu.Unlock()
		if !all {
			b.stopWatching(func(string) bool { return true })
		}
	}
}

// stopWatching stops the watchers of the mutexes for which unwanted is true, unless a contender
// waits or a client subscribes to their channels.
func (b *Backend) stopWatching(unwanted func(mutex string) bool) {
	b.eachMutex(unwanted, func(m *mutex) {
		if w := m.watcher; w != nil && !b.isNeeded(m, w) {
			close(w.stop)
			m.watcher = nil
		}
	})
}

func (b *Backend) isNeeded(m *mutex, w *watcher) bool {
	maps.DeleteFunc(w.listeners, func(c string, _ struct{}) bool { return !b.Notices.Subscribed(simba.ContenderChannel(m.name, c)) })
	needed := len(w.listeners) > 0 || b.Waiters.Count(m.name) > 0 ||
		b.Notices.Subscribed(simba.MutexChannel(m.name)) || b.Notices.Subscribed(simba.EventChannel(m.name))
	for _, n := range m.entries {
		needed = needed || n.kind != kindOwner
	}
	return needed
}
