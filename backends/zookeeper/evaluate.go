package zookeeper

import (
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// firstNode is the first node of a mutex as a watcher last saw it.
type firstNode struct {
	child    string
	own      bool // its contender asks this server; other code announces its tenures
	owned    bool
	event    simba.Event // if not own: Owner and Token
	end      time.Time   // if not own: when its lease ends, as far as this server knows
	reserved bool        // if not own: the mutex is reserved for its polling waiter
}

// evaluate acts on the last listing. It reports whether the caller must evaluate again soon.
func (b *Backend) evaluate(w *watcher, v *view) (incomplete bool) {
	incomplete = b.orphanUnknownNodes(v.s, w.mutex, v.names, v.suspects)
	b.announceEndings(w, v)
	b.flagListeners(w, v)
	if len(v.names) == 0 {
		began, reserved := v.began, v.first.reserved
		b.setFirst(w, v, firstNode{})
		if began {
			b.announceFree(w.mutex, reserved)
		} else {
			b.skipFreeNotice(w.mutex) // the mutex was free before the first subscription
		}
		return incomplete
	}
	child := v.names[0]
	b.mu.Lock()
	var n *node
	if m := b.mutexes[w.mutex]; m != nil {
		if n = m.guids[guidOf(child)]; n != nil && (n.s != v.s || n.foreign && n.kind == kindOwner) {
			n = nil
		}
	}
	b.mu.Unlock()
	if n != nil {
		b.setFirst(w, v, firstNode{child: child, own: true})
		b.serveFirst(n, len(v.names) == 1)
		return incomplete
	}
	if v.first.child == child && (v.first.owned || v.first.own) {
		return incomplete
	}
	return b.evaluateForeign(w, v, child) || incomplete
}

// serveFirst grants the mutex to the contender of the first node, or reserves it for that
// contender. only says that there is no other node.
func (b *Backend) serveFirst(n *node, only bool) {
	k := n.key()
	waits := b.waiters.Find(k.mutex, k.contender) != nil
	subscribed := b.notices.Subscribed(simba.ContenderChannel(k.mutex, k.contender))
	before := b.lastOwner(k)
	now := time.Now()

	b.mu.Lock()
	switch {
	case n.forgotten || n.kind == kindOwner:
		b.mu.Unlock()
	case b.elsewhereLocked(n): // another server grants it, or is gone
		if n.reservedUntil.IsZero() {
			n.reservedUntil = now.Add(n.s.negotiated())
			b.armLocked(n)
		}
		b.mu.Unlock()
	case n.kind == kindBlocked && (!waits || n.granting): // it leaves, or a grant is in progress
		b.mu.Unlock()
	case n.kind == kindBlocked:
		n.granting = true
		b.mu.Unlock()
		b.background(func() { b.grantWaiter(n) })
	case n.idle && !only:
		n.reservedUntil, n.idle = now, false
		b.armLocked(n)
		b.mu.Unlock()
	case n.reservedUntil.IsZero() && !n.idle:
		window := b.HandoffWindow()
		reachable := subscribed || n.listening
		if n.foreign || reachable && window > 0 {
			n.reservedUntil = now.Add(window)
			b.armLocked(n)
		} else if n.idle = only; !only {
			n.reservedUntil = now
			b.armLocked(n)
		}
		if !n.foreign {
			b.scheduleWriteLocked(n, 0)
		}
		free := n.idle
		b.mu.Unlock()
		if subscribed {
			b.notices.Publish(simba.ContenderChannel(k.mutex, k.contender), simba.OfferNotice(before, k.contender))
		}
		if free {
			b.announceFree(k.mutex, false)
		}
	default:
		b.mu.Unlock()
	}
}

// lastOwner returns the last owner of a mutex. If the contender has a node, queuedBehind may name a
// later tenure than the event log.
func (b *Backend) lastOwner(k nodeKey) string {
	last, _ := b.eventLog.Last(k.mutex)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.nodeLocked(k); n != nil && n.queuedBehind.Token > last.Token {
		return n.queuedBehind.Owner
	}
	return last.Owner
}

// announceEndings announces the ends of tenures whose nodes are gone. The caller must call it
// before it announces later tenures.
func (b *Backend) announceEndings(w *watcher, v *view) {
	var events []simba.Event
	b.mu.Lock()
	if m := b.mutexes[w.mutex]; m != nil {
		for g, e := range m.endings {
			if e.Token != 0 && !slices.ContainsFunc(v.names, func(c string) bool { return guidOf(c) == g }) {
				events = append(events, e)
			}
		}
	}
	b.mu.Unlock()
	for _, e := range events {
		b.announceEnd(e)
	}
}

// setFirst records the first node. If the previous first node was another server's owner, setFirst
// announces the end of that tenure.
func (b *Backend) setFirst(w *watcher, v *view, now firstNode) {
	before := v.first
	v.first, v.began = now, true
	if before.child == now.child || before.own || !before.owned {
		return
	}
	e := before.event
	e.Kind = simba.EventReleased
	if !before.end.IsZero() && !time.Now().Before(before.end) {
		e.Kind = simba.EventExpired
	}
	b.announceEnd(e)
}

// evaluateForeign reads a first node whose contender does not ask this server. It announces the
// contender's tenure, or notifies the contender if it is a polling waiter.
func (b *Backend) evaluateForeign(w *watcher, v *view, child string) (incomplete bool) {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	n, err := b.readNode(ctx, v.s, w.mutex, child)
	if err != nil || n == nil {
		b.failWaits(w.mutex, err)
		return true
	}
	before := v.first
	b.mu.Lock()
	if n.undecidedLocked() && v.pzxid == int64(n.token) { // it was the first from its creation on
		n.kind = kindOwner
	}
	known := v.began || w.fresh
	h := b.headLocked(n)
	now := firstNode{
		child: child, owned: n.kind == kindOwner && !n.over,
		event: simba.Event{Mutex: w.mutex, Owner: n.contender, Token: n.token},
	}
	if n.guid != "" && n.kind == kindOwner && !n.bare {
		now.end = n.end()
	}
	w.leaseEnd = time.Now().Add(h.transitionLeft)
	b.mu.Unlock()
	now.reserved = n.kind == kindPolling
	newlyReserved := now.reserved && !(v.first.child == child && v.first.reserved)
	b.setFirst(w, v, now)
	switch {
	case now.owned && known:
		e := now.event
		e.Kind, e.At = simba.EventAcquired, h.acquiredAt
		b.eventLog.Record(e)
	case newlyReserved && b.notices.Subscribed(simba.ContenderChannel(w.mutex, n.contender)):
		old := before.event.Owner
		if old == "" { // for example after a tenure of this server's client
			old = b.lastOwner(n.key())
		}
		b.notices.Publish(simba.ContenderChannel(w.mutex, n.contender), simba.OfferNotice(old, n.contender))
	}
	return !now.owned // the node may become the owner's without a change of the listing
}
