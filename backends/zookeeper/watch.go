package zookeeper

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// relistInterval is how often a watcher lists without a watch event. If the user lacks the right to
// read, ZooKeeper 3.8.4 drops the watch silently (CVE-2024-23944).
const relistInterval = 10 * time.Second

// watcher watches the children of a node.
type watcher struct {
	slot  *slot
	path  func(*session) string
	act   func(s *session, names []string, start time.Time) // start is when it began to list
	mutex string                                            // its engine learns of changes; "" = none
	wake  chan struct{}                                     // capacity 1; it lists again
	stop  chan struct{}                                     // closed when the watcher is not needed

	// The children while a watch is set, guarded by store.mu.
	names   []string
	changed <-chan zk.Event
}

func newWatcher(l *slot, mutex string, path func(*session) string) *watcher {
	return &watcher{slot: l, mutex: mutex, path: path, wake: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Watch implements proxy.Store.
func (st *store) Watch(mutex string) {
	w := newWatcher(st.slotOf(mutex), mutex, func(s *session) string { return s.mutex(mutex) })
	var told sync.Map // by contender: the guid of a node whose server knows that it subscribes here
	w.act = func(s *session, names []string, start time.Time) {
		st.findDeleted(s, mutex, names, start)
		st.tellListeners(&told, s, mutex, names)
	}
	st.mu.Lock()
	st.watched[mutex] = w
	st.mu.Unlock()
	st.Go(func() { st.follow(w) })
}

// Unwatch implements proxy.Store.
func (st *store) Unwatch(mutex string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	close(st.watched[mutex].stop)
	delete(st.watched, mutex)
}

// Listen implements proxy.Queue.
func (st *store) Listen(mutex string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	proxy.Wake(st.watched[mutex].wake)
}

// WatchAll implements proxy.Queue.
func (st *store) WatchAll(none bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.root != nil {
		close(st.root.stop)
		st.root = nil
		for _, w := range st.watched {
			proxy.Wake(w.wake) // it has to watch for the creation of its node
		}
	}
	if none {
		return
	}
	w, first := newWatcher(st.slots[0], "", (*session).mutexes), true
	w.act = func(_ *session, names []string, _ time.Time) {
		mutexes := decodeNames(names)
		st.hooks.Listed(mutexes, first)
		first = false
		st.mu.Lock()
		defer st.mu.Unlock()
		for _, mutex := range mutexes {
			if w := st.watched[mutex]; w != nil && w.changed == nil { // the node was made again since the last list
				proxy.Wake(w.wake)
			}
		}
	}
	st.root = w
	st.Go(func() { st.follow(w) })
}

// follow lists the children of a watcher's node, and acts on the list: after each change, after a
// reconnect, when all watches fire, and from time to time.
func (st *store) follow(w *watcher) {
	var s *session
	var changed <-chan zk.Event // nil = the watch is not set
	for !st.Stopped() {
		now, err := w.slot.current(st.Stopping, st)
		delay := relistInterval
		if err == nil {
			if now != s {
				s, changed = now, nil
				st.setNames(w, nil, nil)
			}
			var names []string
			start := time.Now()
			if changed != nil {
				names, err = s.list(s.ctx, w.path(s))
			} else {
				st.mu.Lock()
				creation := w.mutex == "" || st.root == nil
				st.mu.Unlock()
				names, changed, err = s.watch(s.ctx, w.path(s), creation)
			}
			if err == nil && changed != nil {
				st.setNames(w, names, changed)
			}
			if err == nil {
				w.act(s, names, start)
			}
		}
		if err != nil {
			changed, delay = nil, retryPause
			st.setNames(w, nil, nil)
		}
		if w.mutex != "" {
			st.hooks.Changed(w.mutex)
		}
		select {
		case <-changed:
			changed = nil
			st.setNames(w, nil, nil)
		case <-w.wake:
		case <-time.After(delay):
		case <-w.stop:
			return
		case <-st.Stopping.Done():
		}
	}
}

func (st *store) setNames(w *watcher, names []string, changed <-chan zk.Event) {
	sortChildren(names)
	st.mu.Lock()
	defer st.mu.Unlock()
	w.names, w.changed = names, changed
}

// findDeleted finds the entries whose nodes a person has deleted.
func (st *store) findDeleted(s *session, mutex string, names []string, start time.Time) {
	m := st.lock(mutex)
	defer st.unlock(m)
	there := make(map[string]bool, len(names))
	for _, child := range names {
		there[child] = true
	}
	for _, n := range m.entries {
		if n.s == s && n.child != "" && n.made.Before(start) && !there[n.child] {
			st.forgetDeleted(m, n)
		}
	}
}

// tellListeners tells other servers that the contenders of their nodes subscribe here.
func (st *store) tellListeners(told *sync.Map, s *session, mutex string, names []string) {
	listeners := st.hooks.Listeners(mutex)
	told.Range(func(c, _ any) bool {
		if !listeners[c.(string)] {
			told.Delete(c)
		}
		return true
	})
	for c := range listeners {
		g := guidOf(older(names, c, s.tag))
		if last, _ := told.Swap(c, g); last == g || g == "" {
			continue
		}
		st.Go(func() {
			ctx, cancel := context.WithTimeout(st.Stopping, st.options.Timeout)
			defer cancel()
			if _, err := st.tryAsk(ctx, s, request{Op: opListen, GUID: g, Mutex: mutex, Contender: c}); err != nil {
				told.Delete(c) // the next listing tries again
			}
		})
	}
}
