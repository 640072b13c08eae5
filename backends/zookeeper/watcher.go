package zookeeper

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

const (
	// relistInterval is how often a watcher lists without a watch event. If the user lacks the right
	// to read, ZooKeeper 3.8.4 drops the watch silently (CVE-2024-23944).
	relistInterval = 10 * time.Second
	// reevaluateDelay is the pause before a listing is repeated, if its first node may become the
	// owner's without a change of the listing.
	reevaluateDelay = 25 * time.Millisecond
)

// watcher watches the children of a node. That of a mutex runs while clients here wait for the mutex
// or subscribe to it.
type watcher struct {
	woken chan struct{} // has an element if the watcher must list again
	stop  chan struct{} // closed when the watcher is not needed
	ready chan struct{} // closed after the first listing: the watcher notices all later changes

	slot *slot
	path func(*session) string
	// byPattern says that only patterns need the watcher. It does not watch for the creation of its
	// node then, since the root watcher sees that.
	byPattern atomic.Bool
	// act acts on a listing that began at start. The watcher lists again after the time in the result;
	// 0 = after a change.
	act  func(s *session, names []string, start time.Time) time.Duration
	fail func(error)

	// Of the watcher of a mutex, guarded by the mutex's lock.
	listeners map[string]struct{} // contenders whose own channel is subscribed here
	told      map[guid]bool       // nodes whose server knows that the contender subscribes here
	known     bool                // announce a first node of another server, since it is new
	first     firstNode           // as of the last listing
}

// firstNode is the first node of a mutex, if another server or a JVM has created it.
type firstNode struct {
	child string
	owned bool
	event simba.Event // the beginning of its tenure
	end   time.Time   // when the lease ends, as far as this server knows; zero = unknown
	// readAgain is when to read the node again. The owner may have renewed the lease, or a polling
	// waiter may have become the owner.
	readAgain time.Time
}

func newWatcher(l *slot, path func(*session) string) *watcher {
	return &watcher{
		slot: l, path: path, woken: make(chan struct{}, 1), stop: make(chan struct{}), ready: make(chan struct{}),
		listeners: make(map[string]struct{}), told: make(map[guid]bool), fail: func(error) {},
	}
}

func (w *watcher) wake() { proxy.Wake(w.woken) }

// watch starts the watcher of a mutex.
func (b *Backend) watch(m *mutex) *watcher {
	if m.watcher == nil {
		name := m.name
		w := newWatcher(b.slotOf(name), func(s *session) string { return s.mutex(name) })
		w.act = func(s *session, names []string, start time.Time) time.Duration {
			return b.evaluate(w, s, name, names, start)
		}
		w.fail = func(err error) { b.failWaits(name, err) }
		m.watcher, m.freedBy = w, "" // nobody here has subscribed before
		b.Go(func() { b.follow(w) })
	}
	m.watcher.byPattern.Store(false)
	return m.watcher
}

// follow lists the children of a watcher's node, and acts on the list: after each change, when the
// watcher is woken, after a reconnect, when all watches fire, and from time to time.
func (b *Backend) follow(w *watcher) {
	var s *session
	var changed <-chan zk.Event // nil = the watch is not set
	for first := true; !b.Stopped(); {
		now, err := w.slot.current(b.Stopping, b)
		delay := retryPause
		if err == nil {
			if now != s {
				s, changed = now, nil
			}
			start := time.Now()
			var names []string
			if changed != nil {
				names, err = s.list(s.ctx, w.path(s))
			} else {
				names, changed, err = s.watch(s.ctx, w.path(s), !w.byPattern.Load())
			}
			if err == nil {
				sortChildren(names)
				if soon := w.act(s, names, start); soon > 0 {
					delay = min(soon, relistInterval)
				} else if changed != nil {
					delay = relistInterval
				}
				if first {
					close(w.ready)
				}
				first = false
			}
		}
		if err != nil {
			changed, delay = nil, retryPause
			w.fail(err)
		}
		later := time.NewTimer(delay)
		select {
		case <-changed:
			changed = nil
		case <-w.woken:
		case <-later.C:
		case <-w.stop:
			later.Stop()
			return
		case <-b.Stopping.Done():
		}
		later.Stop()
	}
}

// evaluate acts on a listing of the nodes of a mutex. It returns when to list again; 0 = after a
// change.
func (b *Backend) evaluate(w *watcher, s *session, name string, names []string, start time.Time) (again time.Duration) {
	m := b.lock(name)
	defer b.unlock(m)
	if m.watcher != w || !s.alive() {
		return 0
	}
	listed := make(map[guid]bool, len(names))
	for _, child := range names {
		listed[guidOf(child)] = true
	}
	for _, n := range m.entries { // a person has deleted the nodes that are missing
		if n.child != "" && n.made.Before(start) && !listed[n.guid] {
			b.forgetDeleted(m, n)
		}
	}
	m.markOwn(names)
	maps.DeleteFunc(w.told, func(g guid, _ bool) bool { return !listed[g] })
	b.tellListeners(m, w, s, names)
	switch {
	case len(names) == 0:
		b.setFirst(m, w, firstNode{})
		b.announceFree(m)
	case m.at(names[0]) != nil:
		n := m.at(names[0])
		b.setFirst(m, w, firstNode{})
		if err := b.serveFirst(m, n, len(names) == 1); err != nil {
			b.failWaits(name, err)
			again = retryPause
		}
	default:
		if again = time.Until(w.first.readAgain); w.first.child != names[0] || again <= 0 {
			return b.evaluateForeign(m, w, s, names[0])
		}
	}
	return again
}

// tellListeners tells other servers that the contenders of their nodes subscribe here.
func (b *Backend) tellListeners(m *mutex, w *watcher, s *session, names []string) {
	for c := range w.listeners {
		if g := guidOf(older(names, c, s.tag)); g != "" && !w.told[g] {
			w.told[g] = true
			b.Go(func() {
				ctx, cancel := context.WithTimeout(b.Stopping, b.options.Timeout)
				defer cancel()
				_, _ = b.tryAsk(ctx, s, request{Op: opListen, GUID: g, Mutex: m.name, Contender: c})
			})
		}
	}
}

// setFirst records the first node. If the previous first node was another server's owner, setFirst
// announces the end of that tenure.
func (b *Backend) setFirst(m *mutex, w *watcher, now firstNode) {
	before := w.first
	w.first, w.known = now, true
	if before.child == now.child || !before.owned {
		return
	}
	e := before.event
	e.At, e.Kind = 0, simba.EventReleased
	if !before.end.IsZero() && !time.Now().Before(before.end) {
		e.Kind = simba.EventExpired
	}
	b.Events.Record(e)
	m.note(e)
}

// evaluateForeign reads a first node of another server. It announces the contender's tenure, or
// notifies the contender if it is a polling waiter.
func (b *Backend) evaluateForeign(m *mutex, w *watcher, s *session, child string) (again time.Duration) {
	h, err := b.readNode(s.ctx, s, m.name, child)
	if err != nil || h == nil {
		b.failWaits(m.name, err)
		return reevaluateDelay
	}
	before, known := w.first, w.known
	now := firstNode{
		child: child, owned: h.owned,
		event: simba.Event{Kind: simba.EventAcquired, Mutex: m.name, Owner: h.contender, Token: h.token, At: h.acquiredAt},
	}
	again = reevaluateDelay
	if h.owned {
		again = max(again, h.transitionLeft/2)
	}
	if h.owned && !h.bare {
		now.end = time.Now().Add(h.transitionLeft)
	}
	now.readAgain = time.Now().Add(again)
	b.setFirst(m, w, now)
	own := simba.ContenderChannel(m.name, h.contender)
	switch {
	case h.owned && known:
		b.Events.Record(now.event)
		m.note(now.event)
	case !h.owned && before.child != child:
		m.quiet = false
		if b.Notices.Subscribed(own) {
			b.Notices.Publish(own, simba.OfferNotice(b.lastOwner(m.name), h.contender))
		}
	}
	return again
}

// failWaits ends the waits for a mutex with err if err is lasting.
func (b *Backend) failWaits(mutex string, err error) {
	if lasting(err) && !b.Stopped() {
		b.Waiters.Fail(mutex, b.misconfigured(err))
	}
}

// rejoin makes the requests of the blocked waiters of a mutex again that have no entry here, in
// order.
func (b *Backend) rejoin(mutex string) {
	b.Go(func() {
		for _, t := range b.Waiters.Waiting(mutex) {
			for !b.Stopped() && !b.tryRejoin(t) {
				proxy.Sleep(b.Stopping, retryPause, nil)
			}
		}
	})
}
