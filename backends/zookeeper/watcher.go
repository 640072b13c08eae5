package zookeeper

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// watcher watches the nodes of a mutex while clients here wait for it or subscribe to it. One watch
// serves all of them.
type watcher struct {
	mutex string
	woken chan struct{} // has an element if the watcher must evaluate again
	stop  chan struct{} // closed when the watcher is not needed
	ready chan struct{} // closed after the first listing: the watcher notices all later changes

	// Guarded by Backend.mu.
	fresh     bool                // the mutex's node is new: announce its first owner too
	leaseEnd  time.Time           // when the lease of another server's owner ends
	listeners map[string]struct{} // contenders whose own channel is subscribed here
}

func (w *watcher) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (b *Backend) watcherLocked(mutex string) *watcher {
	m := b.mutexLocked(mutex)
	if m.watcher == nil {
		m.watcher = newWatcher(mutex)
		if !b.closed {
			b.all.Go(func() { b.runWatcher(m.watcher) })
		}
	}
	return m.watcher
}

func newWatcher(mutex string) *watcher {
	return &watcher{
		mutex: mutex, woken: make(chan struct{}, 1), stop: make(chan struct{}), ready: make(chan struct{}),
		listeners: make(map[string]struct{}),
	}
}

// view is the state of a running watcher.
type view struct {
	s        *session
	names    []string
	pzxid    int64 // zxid of the last creation or deletion of a child
	first    firstNode
	began    bool          // first is valid
	suspects map[guid]bool // see orphanUnknownNodes
	flagged  map[guid]bool // nodes in whose lease this server set Listening
}

// runWatcher lists the nodes and evaluates the list. It lists again after each change and from time
// to time. It evaluates again when it is woken.
func (b *Backend) runWatcher(w *watcher) {
	v := view{suspects: make(map[guid]bool), flagged: make(map[guid]bool)}
	var seen sync.Once
	relist := time.NewTicker(relistInterval)
	defer relist.Stop()
	for {
		changed, err := b.listAndWatch(w, &v)
		var later <-chan time.Time
		if err == nil {
			incomplete := b.evaluate(w, &v)
			seen.Do(func() { close(w.ready) })
			if incomplete {
				later = time.After(reevaluateDelay)
			} else if changed == nil {
				later = time.After(retryPause)
			}
		} else {
			b.failWaits(w.mutex, err)
			later = time.After(retryPause)
		}
	waiting:
		for {
			select {
			case <-changed:
				if b.canBatch(w) {
					select {
					case <-time.After(batchDelay):
					case <-w.woken:
					case <-w.stop:
						return
					case <-b.life.Done():
						return
					}
				}
				break waiting
			case <-w.woken:
				if v.s != nil && v.s.alive() && b.evaluate(w, &v) && later == nil {
					later = time.After(reevaluateDelay)
				}
			case <-later:
				if changed == nil {
					break waiting
				}
				later = nil
				if b.relist(w, &v) != nil || b.evaluate(w, &v) {
					later = time.After(reevaluateDelay)
				}
			case <-relist.C:
				before := v.pzxid
				if changed != nil && b.isNeeded(w) && (b.relist(w, &v) != nil || v.pzxid != before) {
					break waiting
				}
			case <-sessionOver(v.s):
				break waiting
			case <-w.stop:
				return
			case <-b.life.Done():
				return
			}
		}
	}
}

// relistInterval is how often the watcher lists without a watch event, while clients wait or
// subscribe. If the user lacks the right to read, ZooKeeper 3.8.4 drops the watch silently
// (CVE-2024-23944).
const relistInterval = 10 * time.Second

// isNeeded reports whether a client of this server waits for the mutex or subscribes to it.
func (b *Backend) isNeeded(w *watcher) bool {
	if b.waiters.Count(w.mutex) > 0 {
		return true
	}
	b.mu.Lock()
	m := b.mutexes[w.mutex]
	b.mu.Unlock()
	return m != nil && b.hasSubscribers(m)
}

// reevaluateDelay is the pause before an incomplete evaluation is repeated.
const reevaluateDelay = 25 * time.Millisecond

// batchDelay delays a listing that is not urgent, so that several changes of a busy queue are
// listed together.
const batchDelay = 5 * time.Millisecond

// canBatch reports whether a listing is not urgent: a client here owns the mutex, and no node is
// being deleted.
func (b *Backend) canBatch(w *watcher) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mutexes[w.mutex]
	if m == nil || len(m.endings) != 0 {
		return false
	}
	now := time.Now()
	for _, n := range m.nodes {
		if n.ownsLocked(now) && !n.foreign {
			return true
		}
	}
	return false
}

func sessionOver(s *session) <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.over
}

func (b *Backend) listAndWatch(w *watcher, v *view) (changed <-chan zk.Event, err error) {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	s, err := b.current(ctx, w.mutex)
	if err != nil {
		v.s = nil
		return nil, err
	}
	start := time.Now()
	l, err := s.watch(ctx, s.mutex(w.mutex), b.waitsForCreation(w))
	if err != nil {
		v.s = nil
		return nil, err
	}
	sortChildren(l.names)
	v.s, v.names, v.pzxid = s, l.names, l.pzxid
	b.dropMissing(w, v, start)
	return l.changed, nil
}

// waitsForCreation reports whether a watcher must watch for the creation of its mutex's node. If
// only patterns need the watcher, it need not: the root watcher sees the creation.
func (b *Backend) waitsForCreation(w *watcher) bool {
	b.mu.Lock()
	m, pattern := b.mutexes[w.mutex], b.root != nil
	waiting := m != nil && len(m.nodes) != 0
	b.mu.Unlock()
	return !pattern || waiting || m == nil || b.hasSubscribers(m)
}

// relist lists the nodes again under the existing watch.
func (b *Backend) relist(w *watcher, v *view) error {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	start := time.Now()
	names, pzxid, err := v.s.childrenAt(ctx, w.mutex)
	if err != nil {
		return err
	}
	v.names, v.pzxid = names, pzxid
	b.dropMissing(w, v, start)
	return nil
}

// dropMissing forgets nodes that existed before the listing began and are missing from it. Another
// server, or a person, has deleted them.
func (b *Backend) dropMissing(w *watcher, v *view, start time.Time) {
	listed := make(map[string]bool, len(v.names))
	for _, child := range v.names {
		listed[child] = true
	}
	var missing []*node
	b.mu.Lock()
	if m := b.mutexes[w.mutex]; m != nil {
		for _, n := range m.nodes {
			_, ending := m.endings[n.guid]
			if n.s == v.s && !listed[n.child] && n.made.Before(start) && !ending {
				missing = append(missing, n)
			}
		}
	}
	b.mu.Unlock()
	for _, n := range missing {
		b.forgetDeleted(n)
		if n.foreign { // the creator is probably gone: queue the waiter here
			b.rejoin(w.mutex)
		} else {
			// An empty Grant ends the wait without the mutex.
			b.waiters.Grant(n.mutex, n.contender, proxy.Grant{})
		}
	}
}
