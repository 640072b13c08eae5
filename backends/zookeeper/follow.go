package zookeeper

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// follower watches a mutex' nodes while somebody here wants to know: who waits, or
// subscribes. One watch serves all of them.
type follower struct {
	mutex string
	poke  chan struct{} // look again at what was listed last
	stop  chan struct{} // closed when nobody wants to know any more
	ready chan struct{} // closed when changes are seen from now on

	// Guarded by Backend.mu.
	fresh     bool                // the mutex is new: even its first owner is news
	until     time.Time           // when the lease of another server's owner ends
	listeners map[string]struct{} // contenders whose own channel was subscribed to
}

// again has the follower look again.
func (f *follower) again() {
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

// followLocked returns the follower of a mutex, beginning to follow.
func (b *Backend) followLocked(mutex string) *follower {
	m := b.mutexLocked(mutex)
	if m.follow == nil {
		m.follow = newFollower(mutex)
		if !b.closed {
			b.all.Go(func() { b.follow(m.follow) })
		}
	}
	return m.follow
}

func newFollower(mutex string) *follower {
	return &follower{
		mutex: mutex, poke: make(chan struct{}, 1), stop: make(chan struct{}), ready: make(chan struct{}),
		listeners: make(map[string]struct{}),
	}
}

// sight is the first node of a mutex as a follower saw it last.
type sight struct {
	child string
	own   bool // one of this server's clients: told by who grants or ends it
	owned bool
	event simba.Event // Owner and Token of a foreign one
	end   time.Time   // of its lease, as far as we know
	turn  bool        // it is a polling waiter's, who was told if he listens here
}

// outlook is what a follower has seen so far.
type outlook struct {
	s        *session
	names    []string
	pzxid    int64 // of the last change of the list
	first    sight
	began    bool // something was seen
	suspects map[guid]bool
	flagged  map[guid]bool // lease nodes that say that we listen
}

func (b *Backend) follow(f *follower) {
	o := outlook{suspects: make(map[guid]bool), flagged: make(map[guid]bool)}
	var seen sync.Once
	doubt := time.NewTicker(doubtEvery)
	defer doubt.Stop()
	for {
		changed, err := b.list(f, &o)
		var later <-chan time.Time
		if err == nil {
			incomplete := b.evaluate(f, &o)
			seen.Do(func() { close(f.ready) })
			if incomplete {
				later = time.After(lookAgain)
			} else if changed == nil {
				later = time.After(retryPause)
			}
		} else {
			b.failWaits(f.mutex, err)
			later = time.After(retryPause)
		}
	waiting:
		for {
			select {
			case <-changed:
				if b.calm(f) {
					select {
					case <-time.After(calmness):
					case <-f.poke:
					case <-f.stop:
						return
					case <-b.life.Done():
						return
					}
				}
				break waiting
			case <-f.poke:
				if o.s != nil && o.s.alive() && b.evaluate(f, &o) && later == nil {
					later = time.After(lookAgain)
				}
			case <-later:
				if changed == nil {
					break waiting
				}
				later = nil
				if b.refresh(&o, f) || b.evaluate(f, &o) {
					later = time.After(lookAgain)
				}
			case <-doubt.C:
				before := o.pzxid
				if changed != nil && b.reliedOn(f) && (b.refresh(&o, f) || o.pzxid != before) {
					break waiting
				}
			case <-over(o.s):
				break waiting
			case <-f.stop:
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
const doubtEvery = 10 * time.Second

// reliedOn reports whether somebody here waits for the mutex or listens to it.
func (b *Backend) reliedOn(f *follower) bool {
	if b.waiters.Count(f.mutex) > 0 {
		return true
	}
	b.mu.Lock()
	m := b.mutexes[f.mutex]
	b.mu.Unlock()
	return m != nil && b.wanted(m)
}

// lookAgain is between two looks at what will be clear soon.
const lookAgain = 25 * time.Millisecond

// calmness is how late a follower may be while nothing hangs on it: then the changes of
// a busy queue are listed together.
const calmness = 5 * time.Millisecond

// calm reports whether a client of this server owns the mutex, and goes on owning it as
// far as we know.
func (b *Backend) calm(f *follower) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mutexes[f.mutex]
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

func over(s *session) <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.over
}

// list lists the nodes and watches them.
func (b *Backend) list(f *follower, o *outlook) (changed <-chan zk.Event, err error) {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	s, err := b.current(ctx, f.mutex)
	if err != nil {
		o.s = nil
		return nil, err
	}
	start := time.Now()
	w, err := s.watch(ctx, s.mutex(f.mutex), b.awaits(f))
	if err != nil {
		o.s = nil
		return nil, err
	}
	sortChildren(w.names)
	o.s, o.names, o.pzxid = s, w.names, w.pzxid
	b.miss(f, o, start)
	return w.changed, nil
}

// awaits reports whether a follower waits for its mutex' node to be made; one that is there
// because of a pattern does not: who follows the list of mutexes will see it.
func (b *Backend) awaits(f *follower) bool {
	b.mu.Lock()
	m, pattern := b.mutexes[f.mutex], b.root != nil
	waiting := m != nil && len(m.nodes) != 0
	b.mu.Unlock()
	return !pattern || waiting || m == nil || b.wanted(m)
}

// refresh lists the nodes again, under the watch that there is; it reports a failure.
func (b *Backend) refresh(o *outlook, f *follower) bool {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	start := time.Now()
	names, pzxid, err := o.s.childrenAt(ctx, f.mutex)
	if err != nil {
		return true
	}
	o.names, o.pzxid = names, pzxid
	b.miss(f, o, start)
	return false
}

// miss forgets nodes of this server that were there before the listing began and are
// not in it: another has deleted them.
func (b *Backend) miss(f *follower, o *outlook, start time.Time) {
	there := make(map[string]bool, len(o.names))
	for _, child := range o.names {
		there[child] = true
	}
	var missing []*node
	b.mu.Lock()
	if m := b.mutexes[f.mutex]; m != nil {
		for _, n := range m.nodes {
			_, ending := m.endings[n.guid]
			if n.s == o.s && !there[n.child] && n.made.Before(start) && !ending {
				missing = append(missing, n)
			}
		}
	}
	b.mu.Unlock()
	for _, n := range missing {
		b.vanished(n)
		if n.foreign { // its server is gone, or its session: its waiter here takes a new place
			b.rejoin(f.mutex)
		} else {
			b.waiters.Grant(n.mutex, n.contender, proxy.Grant{})
		}
	}
}

// evaluate draws the conclusions of what was listed; it reports whether to look again soon.
func (b *Backend) evaluate(f *follower, o *outlook) (incomplete bool) {
	incomplete = b.strays(o.s, f.mutex, o.names, o.suspects)
	b.tellEndings(f, o)
	b.listen(f, o)
	if len(o.names) == 0 {
		began, kept := o.began, o.first.turn
		b.moveOn(f, o, sight{})
		if began {
			b.announceFree(f.mutex, kept)
		} else {
			b.skipFree(f.mutex) // it was free before anybody listened
		}
		return incomplete
	}
	child := o.names[0]
	b.mu.Lock()
	var n *node
	if m := b.mutexes[f.mutex]; m != nil {
		if n = m.guids[guidOf(child)]; n != nil && (n.s != o.s || n.foreign && n.kind == kindOwner) {
			n = nil
		}
	}
	b.mu.Unlock()
	if n != nil {
		b.moveOn(f, o, sight{child: child, own: true})
		b.advance(n, len(o.names) == 1)
		return incomplete
	}
	if o.first.child == child && (o.first.owned || o.first.own) {
		return incomplete
	}
	return b.seeForeign(f, o, child) || incomplete
}

// advance gives the first node its turn; alone is whether there is no other.
func (b *Backend) advance(n *node, alone bool) {
	p := n.place()
	waits := b.waiters.Find(p.mutex, p.contender) != nil
	listens := b.notices.Subscribed(simba.ContenderChannel(p.mutex, p.contender))
	before := b.lastOwner(p)
	now := time.Now()

	b.mu.Lock()
	switch {
	case n.gone || n.kind == kindOwner:
		b.mu.Unlock()
	case b.elsewhereLocked(n): // the other server asks for its turn, or is gone
		if n.turn.IsZero() {
			n.turn = now.Add(n.s.negotiated())
			b.armLocked(n)
		}
		b.mu.Unlock()
	case n.kind == kindBlocked && (!waits || n.claiming): // it is about to leave, or to be granted
		b.mu.Unlock()
	case n.kind == kindBlocked:
		n.claiming = true
		b.mu.Unlock()
		b.background(func() { b.claim(n) })
	case n.idle && !alone:
		n.turn, n.idle = now, false
		b.armLocked(n)
		b.mu.Unlock()
	case n.turn.IsZero() && !n.idle:
		window := b.HandoffWindow()
		reached := listens || n.listening
		if n.foreign || reached && window > 0 {
			n.turn = now.Add(window)
			b.armLocked(n)
		} else if n.idle = alone; !alone {
			n.turn = now
			b.armLocked(n)
		}
		if !n.foreign {
			b.markLocked(n, 0)
		}
		open := n.idle
		b.mu.Unlock()
		if listens {
			b.notices.Publish(simba.ContenderChannel(p.mutex, p.contender), simba.ReleasedNotice(before))
		}
		if open {
			b.announceFree(p.mutex, false)
		}
	default:
		b.mu.Unlock()
	}
}

// lastOwner returns who owned a mutex last: its waiter may have been told of a tenure that the follower has not seen.
func (b *Backend) lastOwner(p place) string {
	last, _ := b.eventLog.Last(p.mutex)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.nodeLocked(p); n != nil && n.behind.Token > last.Token {
		return n.behind.Owner
	}
	return last.Owner
}

// tellEndings tells of the nodes that we deleted and that are seen to be gone, before
// anything is told of who came after.
func (b *Backend) tellEndings(f *follower, o *outlook) {
	var events []simba.Event
	b.mu.Lock()
	if m := b.mutexes[f.mutex]; m != nil {
		for g, e := range m.endings {
			if e.Token != 0 && !slices.ContainsFunc(o.names, func(c string) bool { return guidOf(c) == g }) {
				events = append(events, e)
			}
		}
	}
	b.mu.Unlock()
	for _, e := range events {
		b.tell(e)
	}
}

// moveOn notes who is the first now, and tells that the one before is not any more.
func (b *Backend) moveOn(f *follower, o *outlook, now sight) {
	before := o.first
	o.first, o.began = now, true
	if before.child == now.child || before.own || !before.owned {
		return
	}
	e := before.event
	e.Kind = simba.EventReleased
	if !before.end.IsZero() && !time.Now().Before(before.end) {
		e.Kind = simba.EventExpired
	}
	b.tell(e)
}

// seeForeign looks at a first node that another server or a JVM keeps.
func (b *Backend) seeForeign(f *follower, o *outlook, child string) (incomplete bool) {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	n, err := b.foreign(ctx, o.s, f.mutex, child)
	if err != nil || n == nil {
		b.failWaits(f.mutex, err)
		return true
	}
	before := o.first
	b.mu.Lock()
	if n.openLocked() && o.pzxid == int64(n.token) { // it was the first from the beginning
		n.kind = kindOwner
	}
	known := o.began || f.fresh
	h := b.headLocked(n)
	now := sight{
		child: child, owned: n.kind == kindOwner && !n.over,
		event: simba.Event{Mutex: f.mutex, Owner: n.contender, Token: n.token},
	}
	if n.guid != "" && n.kind == kindOwner && !n.bare {
		now.end = n.end()
	}
	f.until = time.Now().Add(h.transitionLeft)
	b.mu.Unlock()
	now.turn = n.kind == kindPolling
	turn := now.turn && !(o.first.child == child && o.first.turn)
	b.moveOn(f, o, now)
	switch {
	case now.owned && known:
		e := now.event
		e.Kind, e.At = simba.EventAcquired, h.acquiredAt
		b.eventLog.Announce(e)
	case turn && b.notices.Subscribed(simba.ContenderChannel(f.mutex, n.contender)):
		old := before.event.Owner
		if old == "" { // as before one of ours, too
			old = b.lastOwner(n.place())
		}
		b.notices.Publish(simba.ContenderChannel(f.mutex, n.contender), simba.ReleasedNotice(old))
	}
	return !now.owned // it may take its turn without a change of the listing
}
