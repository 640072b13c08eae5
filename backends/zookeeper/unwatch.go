package zookeeper

import (
	"github.com/simba-resp/simba-resp"
)

func (b *Backend) stopUnwantedWatchers() {
	for b.pause(unwantedCheckInterval) {
		b.mu.Lock()
		list := make([]*mutex, 0, len(b.mutexes))
		for _, m := range b.mutexes {
			if m.watcher != nil {
				list = append(list, m)
			}
		}
		patterns := make([]string, 0, len(b.patterns))
		for p := range b.patterns {
			patterns = append(patterns, p)
		}
		b.mu.Unlock()
		for _, p := range patterns {
			if !b.notices.SubscribedPattern(p) {
				b.mu.Lock()
				delete(b.patterns, p)
				b.mu.Unlock()
			}
		}
		b.mu.Lock()
		if len(b.patterns) == 0 && b.root != nil {
			close(b.root.stop)
			b.root = nil
		}
		all := b.root != nil
		b.mu.Unlock()
		for _, m := range list {
			if !b.hasSubscribers(m) && !all {
				b.stopWatching(m)
			}
		}
	}
}

func (b *Backend) hasSubscribers(m *mutex) bool {
	b.mu.Lock()
	var contenders []string
	w := m.watcher
	if w != nil {
		for c := range w.listeners {
			contenders = append(contenders, c)
		}
	}
	b.mu.Unlock()
	subscribed := b.notices.Subscribed(simba.MutexChannel(m.name)) || b.notices.Subscribed(simba.EventChannel(m.name))
	for _, c := range contenders {
		if b.notices.Subscribed(simba.ContenderChannel(m.name, c)) {
			subscribed = true
			continue
		}
		b.mu.Lock()
		delete(w.listeners, c)
		b.mu.Unlock()
	}
	return subscribed
}

// stopWatchingMissing stops the watchers of mutexes that no longer exist, unless a client
// subscribes to their channels.
func (b *Backend) stopWatchingMissing(nodes []string) {
	listed := make(map[string]bool, len(nodes))
	for _, name := range nodes {
		listed[name] = true
	}
	var missing []*mutex
	b.mu.Lock()
	for _, m := range b.mutexes {
		if m.watcher != nil && !listed[encodeName(m.name)] {
			missing = append(missing, m)
		}
	}
	b.mu.Unlock()
	for _, m := range missing {
		if !b.hasSubscribers(m) {
			b.stopWatching(m)
		}
	}
}

// stopWatching stops the watcher unless a contender waits.
func (b *Backend) stopWatching(m *mutex) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range m.nodes {
		if n.kind != kindOwner {
			return
		}
	}
	if m.watcher != nil {
		close(m.watcher.stop)
		m.watcher = nil
		b.tidyLocked(m)
	}
}
