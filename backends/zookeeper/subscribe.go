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

// Subscribed implements simba.Backend. A pattern that can match channels of mutexes has
// every mutex followed as long as somebody subscribes to it.
func (b *Backend) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	ready := b.interest(channel, pattern)
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

// interest begins to follow what a channel is about and returns what tells that it is
// followed, nil if the channel is none of ours.
func (b *Backend) interest(channel string, pattern bool) <-chan struct{} {
	if pattern {
		if !mayMatch(channel) {
			return nil
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.patterns[channel] = struct{}{}
		if b.root == nil && !b.closed {
			f := newFollower("")
			b.root = f
			b.all.Go(func() { b.followAll(f) })
		}
		return b.root.ready
	}
	contender := ""
	mutex, ok := simba.ParseMutexChannel(channel)
	if !ok {
		mutex, ok = simba.ParseEventChannel(channel)
	}
	if !ok {
		mutex, contender, ok = simba.ParseContenderChannel(channel)
	}
	if !ok {
		return nil
	}
	again := false
	b.mu.Lock()
	f := b.followLocked(mutex)
	if contender != "" {
		f.listeners[contender] = struct{}{}
		if n := b.nodeLocked(place{mutex, contender}); n != nil && n.kind == kindPolling {
			again = time.Now().Before(n.turn) // what it was told may have gone to a subscription that is no more
			n.idle = false
		}
		f.again()
	}
	b.mu.Unlock()
	if again {
		b.notices.Publish(channel, simba.ReleasedNotice(b.lastOwner(place{mutex, contender})))
	}
	return f.ready
}

// mayMatch reports whether a glob of channels may match one of a mutex.
func mayMatch(glob string) bool {
	literal := glob
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		literal = glob[:i]
	}
	for _, ours := range [...]string{"simba:{", "simba-events:{"} {
		if strings.HasPrefix(literal, ours) || strings.HasPrefix(ours, literal) {
			return true
		}
	}
	return false
}

// followAll follows every mutex that there is, and those that are made.
func (b *Backend) followAll(f *follower) {
	first := true
	for {
		changed, s, ready, err := b.listAll(!first)
		var later <-chan time.Time
		if err == nil {
			for _, r := range ready {
				select {
				case <-r:
				case <-f.stop:
					return
				case <-b.life.Done():
					return
				}
			}
			if first {
				close(f.ready)
				first = false
			}
		} else {
			later = time.After(retryPause)
		}
		select {
		case <-changed:
		case <-later:
		case <-over(s):
		case <-f.stop:
			return
		case <-b.life.Done():
			return
		}
	}
}

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
	b.unfollowAllBut(w.names)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range w.names {
		mutex, ok := decodeName(name)
		if !ok || simba.CheckMutex(mutex) != nil {
			continue
		}
		m := b.mutexes[mutex]
		isNew := m == nil || m.follow == nil
		f := b.followLocked(mutex)
		if isNew && fresh {
			f.fresh = true
		}
		ready = append(ready, f.ready)
	}
	return w.changed, s, ready, nil
}

// listen tells the keepers of the nodes of contenders that listen here that those can
// be reached.
func (b *Backend) listen(f *follower, o *outlook) {
	b.mu.Lock()
	var contenders []string
	for c := range f.listeners {
		contenders = append(contenders, c)
	}
	b.mu.Unlock()
	maps.DeleteFunc(o.flagged, func(g guid, _ bool) bool {
		return !slices.ContainsFunc(o.names, func(child string) bool { return guidOf(child) == g })
	})
	for _, c := range contenders {
		if !b.notices.Subscribed(simba.ContenderChannel(f.mutex, c)) {
			continue
		}
		mark := protected + contenderMark(c)
		for _, child := range o.names {
			if g := guidOf(child); strings.HasPrefix(child, mark) && !g.tagged(o.s.tag) && !o.flagged[g] {
				o.flagged[g] = b.flag(o.s, place{f.mutex, c}, child)
			}
		}
	}
}

func (b *Backend) flag(s *session, p place, child string) bool {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	open, err := b.hold(ctx, p)
	if err != nil {
		return false
	}
	defer open()
	n, err := b.foreign(ctx, s, p.mutex, child)
	if err != nil || n == nil || n.contender != p.contender || n.bare || n.kind == kindOwner {
		return err == nil
	}
	b.mu.Lock()
	n.listening = true
	b.mu.Unlock()
	return gone(b.mark(ctx, n)) == nil
}
