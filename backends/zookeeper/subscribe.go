package zookeeper

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// Subscribed implements simba.Backend. While a pattern that can match channels of mutexes is
// subscribed, every mutex is watched.
func (b *Backend) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	ready := b.watchChannel(channel, pattern)
	if ready == nil {
		return 0, nil
	}
	select {
	case <-ready:
		return 0, nil
	case <-ctx.Done():
		return 0, b.failed(errNoAnswer)
	}
}

// watchChannel watches the mutexes of a channel or pattern. It closes the returned channel once the
// watch notices all later changes. It returns nil if the channel belongs to no mutex.
func (b *Backend) watchChannel(channel string, pattern bool) <-chan struct{} {
	if pattern {
		if mutexes, events := simba.MayMatchChannels(channel); !mutexes && !events {
			return nil
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.patterns[channel] = struct{}{}
		if b.root == nil && !b.closed {
			w := newWatcher("")
			b.root = w
			b.all.Go(func() { b.runRootWatcher(w) })
		}
		return b.root.ready
	}
	mutex, contender, ok := simba.ParseChannel(channel)
	if !ok {
		return nil
	}
	renotify := false
	b.mu.Lock()
	w := b.watcherLocked(mutex)
	if contender != "" {
		w.listeners[contender] = struct{}{}
		if n := b.nodeLocked(nodeKey{mutex, contender}); n != nil && n.kind == kindPolling {
			// The last notice may have gone to a subscription that has ended.
			renotify = time.Now().Before(n.reservedUntil)
			n.idle = false
		}
		w.wake()
	}
	b.mu.Unlock()
	if renotify {
		b.notices.Publish(channel, simba.OfferNotice(b.lastOwner(nodeKey{mutex, contender}), contender))
	}
	return w.ready
}

// runRootWatcher watches every mutex, including new ones.
func (b *Backend) runRootWatcher(w *watcher) {
	first := true
	for {
		changed, s, ready, err := b.listAll(!first)
		var later <-chan time.Time
		if err == nil {
			for _, r := range ready {
				select {
				case <-r:
				case <-w.stop:
					return
				case <-b.life.Done():
					return
				}
			}
			if first {
				close(w.ready)
				first = false
			}
		} else {
			later = time.After(retryPause)
		}
		select {
		case <-changed:
		case <-later:
		case <-sessionOver(s):
		case <-w.stop:
			return
		case <-b.life.Done():
			return
		}
	}
}

// listAll lists and watches the mutexes, and starts a watcher for each. If fresh is true, a new
// watcher also announces its mutex's first owner. ready has the watchers' ready channels.
func (b *Backend) listAll(fresh bool) (changed <-chan zk.Event, s *session, ready []<-chan struct{}, err error) {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	if s, err = b.current(ctx, ""); err != nil {
		return nil, nil, nil, err
	}
	w, err := s.watch(ctx, s.mutexes(), true)
	if err != nil {
		return nil, nil, nil, err
	}
	b.stopWatchingMissing(w.names)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range w.names {
		mutex, ok := decodeName(name)
		if !ok || simba.CheckMutex(mutex) != nil {
			continue
		}
		m := b.mutexes[mutex]
		isNew := m == nil || m.watcher == nil
		w := b.watcherLocked(mutex)
		if isNew && fresh {
			w.fresh = true
		}
		ready = append(ready, w.ready)
	}
	return w.changed, s, ready, nil
}

// flagListeners sets Listening in the leases of nodes that other servers created, if their
// contenders subscribe here.
func (b *Backend) flagListeners(w *watcher, v *view) {
	b.mu.Lock()
	var contenders []string
	for c := range w.listeners {
		contenders = append(contenders, c)
	}
	b.mu.Unlock()
	maps.DeleteFunc(v.flagged, func(g guid, _ bool) bool {
		return !slices.ContainsFunc(v.names, func(child string) bool { return guidOf(child) == g })
	})
	for _, c := range contenders {
		if !b.notices.Subscribed(simba.ContenderChannel(w.mutex, c)) {
			continue
		}
		mark := protected + contenderMark(c)
		for _, child := range v.names {
			if g := guidOf(child); strings.HasPrefix(child, mark) && !g.tagged(v.s.tag) && !v.flagged[g] {
				v.flagged[g] = b.flagListener(v.s, nodeKey{w.mutex, c}, child)
			}
		}
	}
}

// flagListener reports whether the lease of the node has Listening now, or does not need it.
func (b *Backend) flagListener(s *session, k nodeKey, child string) bool {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	unlock, err := b.lockKey(ctx, k)
	if err != nil {
		return false
	}
	defer unlock()
	n, err := b.readNode(ctx, s, k.mutex, child)
	if err != nil || n == nil || n.contender != k.contender || n.bare || n.kind == kindOwner {
		return err == nil
	}
	b.mu.Lock()
	n.listening = true
	b.mu.Unlock()
	return ignoreNoNode(b.writeRecord(ctx, n)) == nil
}
