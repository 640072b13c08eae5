package zookeeper

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// follower watches a mutex' nodes while somebody here wants to know: who waits, or
// subscribes. One watch serves all of them.
type watcher struct {
	mutex string
	woken chan struct{} // look again at what was listed last
	stop  chan struct{} // closed when nobody wants to know any more
	ready chan struct{} // closed when changes are seen from now on

	// Guarded by Backend.mu.
	fresh     bool                // the mutex is new: even its first owner is news
	leaseEnd  time.Time           // when the lease of another server's owner ends
	listeners map[string]struct{} // contenders whose own channel was subscribed to
}

// again has the follower look again.
func (w *watcher) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// followLocked returns the follower of a mutex, beginning to follow.
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

// outlook is what a follower has seen so far.
type view struct {
	s        *session
	names    []string
	pzxid    int64 // of the last change of the list
	first    firstNode
	began    bool // something was seen
	suspects map[guid]bool
	flagged  map[guid]bool // lease nodes that say that we listen
}

func (b *Backend) runWatcher(w *watcher) {
	v := view{suspects: make(map[guid]bool), flagged: make(map[guid]bool)}
	var seen sync.Once
	doubt := time.NewTicker(relistInterval)
	defer doubt.Stop()
	for {
		changed, err := b.list(w, &v)
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
				if b.refresh(&v, w) || b.evaluate(w, &v) {
					later = time.After(reevaluateDelay)
				}
			case <-doubt.C:
				before := v.pzxid
				if changed != nil && b.isNeeded(w) && (b.refresh(&v, w) || v.pzxid != before) {
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

// doubtEvery is how often the queue is read though no watch has told of a change, while
// somebody waits or listens. The ensemble keeps a change to itself if we may not read the
// queue when it comes, and forgets the watch (ZooKeeper 3.8.4, CVE-2024-23944).
const relistInterval = 10 * time.Second

// reliedOn reports whether somebody here waits for the mutex or listens to it.
func (b *Backend) isNeeded(w *watcher) bool {
	if b.waiters.Count(w.mutex) > 0 {
		return true
	}
	b.mu.Lock()
	m := b.mutexes[w.mutex]
	b.mu.Unlock()
	return m != nil && b.hasSubscribers(m)
}

// lookAgain is between two looks at what will be clear soon.
const reevaluateDelay = 25 * time.Millisecond

// calmness is how late a follower may be while nothing hangs on it: then the changes of
// a busy queue are listed together.
const batchDelay = 5 * time.Millisecond

// calm reports whether a client of this server owns the mutex, and goes on owning it as
// far as we know.
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

// list lists the nodes and watches them.
func (b *Backend) list(w *watcher, v *view) (changed <-chan zk.Event, err error) {
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

// awaits reports whether a follower waits for its mutex' node to be made; one that is there
// because of a pattern does not: who follows the list of mutexes will see it.
func (b *Backend) waitsForCreation(w *watcher) bool {
	b.mu.Lock()
	m, pattern := b.mutexes[w.mutex], b.root != nil
	waiting := m != nil && len(m.nodes) != 0
	b.mu.Unlock()
	return !pattern || waiting || m == nil || b.hasSubscribers(m)
}

// refresh lists the nodes again, under the watch that there is; it reports a failure.
func (b *Backend) refresh(v *view, w *watcher) bool {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	start := time.Now()
	names, pzxid, err := v.s.childrenAt(ctx, w.mutex)
	if err != nil {
		return true
	}
	v.names, v.pzxid = names, pzxid
	b.dropMissing(w, v, start)
	return false
}

// miss forgets nodes of this server that were there before the listing began and are
// not in it: another has deleted them.
func (b *Backend) dropMissing(w *watcher, v *view, start time.Time) {
	there := make(map[string]bool, len(v.names))
	for _, child := range v.names {
		there[child] = true
	}
	var missing []*node
	b.mu.Lock()
	if m := b.mutexes[w.mutex]; m != nil {
		for _, n := range m.nodes {
			_, ending := m.endings[n.guid]
			if n.s == v.s && !there[n.child] && n.made.Before(start) && !ending {
				missing = append(missing, n)
			}
		}
	}
	b.mu.Unlock()
	for _, n := range missing {
		b.forgetDeleted(n)
		if n.foreign { // its server is gone, or its session: its waiter here takes a new place
			b.rejoin(w.mutex)
		} else {
			b.waiters.Grant(n.mutex, n.contender, proxy.Grant{})
		}
	}
}
