package zookeeper

import (
	"github.com/simba-resp/simba-resp"
)

// sweep stops following what nobody wants to know any more, now and then.
func (b *Backend) sweep() {
	for b.pause(sweepEvery) {
		b.mu.Lock()
		list := make([]*mutex, 0, len(b.mutexes))
		for _, m := range b.mutexes {
			if m.follow != nil {
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
			if !b.wanted(m) && !all {
				b.unfollow(m)
			}
		}
	}
}

// wanted reports whether somebody subscribes to what a mutex' follower tells.
func (b *Backend) wanted(m *mutex) bool {
	b.mu.Lock()
	var contenders []string
	f := m.follow
	if f != nil {
		for c := range f.listeners {
			contenders = append(contenders, c)
		}
	}
	b.mu.Unlock()
	listens := b.notices.Subscribed(simba.MutexChannel(m.name)) || b.notices.Subscribed(simba.EventChannel(m.name))
	for _, c := range contenders {
		if b.notices.Subscribed(simba.ContenderChannel(m.name, c)) {
			listens = true
			continue
		}
		b.mu.Lock()
		delete(f.listeners, c)
		b.mu.Unlock()
	}
	return listens
}

// unfollowAllBut stops following mutexes that are not there any more and that nobody
// asked for by name.
func (b *Backend) unfollowAllBut(nodes []string) {
	there := make(map[string]bool, len(nodes))
	for _, name := range nodes {
		there[name] = true
	}
	var missing []*mutex
	b.mu.Lock()
	for _, m := range b.mutexes {
		if m.follow != nil && !there[encodeName(m.name)] {
			missing = append(missing, m)
		}
	}
	b.mu.Unlock()
	for _, m := range missing {
		if !b.wanted(m) {
			b.unfollow(m)
		}
	}
}

// unfollow stops following unless somebody waits.
func (b *Backend) unfollow(m *mutex) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range m.nodes {
		if n.kind != kindOwner {
			return
		}
	}
	if m.follow != nil {
		close(m.follow.stop)
		m.follow = nil
		b.tidyLocked(m)
	}
}
