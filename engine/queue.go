package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// order is the sort key of a queue entry. No two entries in a shard have the same arrival.
type order struct {
	score   float64
	arrival uint64
}

func (p order) compare(o order) int {
	return cmp.Or(cmp.Compare(p.score, o.score), cmp.Compare(p.arrival, o.arrival))
}

// entry is a contender that waits. Later arrivals have a larger order. Only a ZADD changes the
// order of an entry.
type entry struct {
	contender  string
	order      order
	since      simba.Instant
	lapse      simba.Instant // when a polling waiter that does not ask again is removed
	ttl        time.Duration // ttl, transition and session are those of the last request
	transition time.Duration
	session    uint64
	ticket     *ticket // nil = a polling waiter
	offered    uint64  // queue.offerRound at the last offer, plus 1; 0 = no offer
	ready      bool    // queue.ready has the entry
	// seen is the end of the lease that a script for this contender saw last; 0 = no script has
	// asked in vain. kept means that the last reservation lasted until the script would ask again.
	seen simba.Instant
	kept bool
}

// entryList is a list of entries by order. Adding at the end and removing at the front are cheap.
// Bisection finds the rank of an entry.
type entryList []*entry

func (l entryList) rank(e *entry) int {
	i, _ := l.search(e.order)
	return i
}

// search returns the index of the first entry whose order is p or larger. found reports whether its
// order is p.
func (l entryList) search(p order) (index int, found bool) {
	return slices.BinarySearchFunc(l, p, func(x *entry, p order) int { return x.order.compare(p) })
}

func (l *entryList) add(e *entry) {
	if n := len(*l); n == 0 || (*l)[n-1].order.compare(e.order) < 0 {
		*l = append(*l, e)
		return
	}
	*l = slices.Insert(*l, l.rank(e), e)
}

func (l *entryList) remove(e *entry) {
	i := l.rank(e)
	if i == 0 {
		(*l)[0] = nil // the array must not keep e in memory
		*l = (*l)[1:]
		return
	}
	*l = slices.Delete(*l, i, i+1)
}

// indexFrom is the length at which a queue gets a map that finds entries by name.
const indexFrom = 16

// queue has the contenders that wait for a mutex.
type queue struct {
	all     entryList
	ready   entryList         // the reachable waiters, see the package comment
	index   map[string]*entry // entries by name; nil = the queue is short
	room    int               // the largest len(all) since shrink last released memory
	names   int               // bytes of the waiters' names
	blocked int64             // number of blocked waiters
	version uint64            // number of changes of the field all
	// offerRound counts the tenures that ended. A waiter gets one offer a round.
	offerRound uint64
	offered    mark      // every ready waiter before the mark has had its offer
	unwoken    []*ticket // tickets whose grant was lost before its commit, in the order of these grants
	// nextLapse is not later than the first lapse of a polling waiter; 0 = no waiter can lapse.
	nextLapse simba.Instant
}

// mark is a position between two entries. A closed mark is just behind the entry with its order. An
// open mark is just before that entry. The zero mark is before all entries.
type mark struct {
	order  order
	set    bool
	closed bool
}

// first returns the index in l of the first entry behind the mark.
func (m mark) first(l entryList) int {
	if !m.set {
		return 0
	}
	i, found := l.search(m.order)
	if found && m.closed {
		i++
	}
	return i
}

func (q *queue) find(contender string) *entry {
	if q.index != nil {
		return q.index[contender]
	}
	for _, e := range q.all {
		if e.contender == contender {
			return e
		}
	}
	return nil
}

func (q *queue) add(e *entry) {
	q.version++
	q.names += len(e.contender)
	q.all.add(e)
	q.room = max(q.room, len(q.all))
	switch {
	case q.index != nil:
		q.index[e.contender] = e
	case len(q.all) >= indexFrom:
		q.makeIndex()
	}
}

func (q *queue) makeIndex() {
	q.index = make(map[string]*entry, max(2*indexFrom, len(q.all)))
	for _, x := range q.all {
		q.index[x.contender] = x
	}
}

// shrink releases memory when the queue is empty, or has shrunk to a quarter of its largest length.
func (q *queue) shrink() {
	if n := len(q.all); n > 0 && (q.room <= indexFrom || n > q.room/4) {
		return
	}
	q.room, q.index = len(q.all), nil
	q.all, q.ready = append(entryList(nil), q.all...), append(entryList(nil), q.ready...)
	if q.room >= indexFrom {
		q.makeIndex()
	}
}

func (q *queue) remove(e *entry) {
	q.version++
	q.names -= len(e.contender)
	q.setTicket(e, nil)
	q.setReady(e, false)
	q.all.remove(e)
	delete(q.index, e.contender)
	q.shrink()
}

func (q *queue) move(e *entry, to order) {
	ready := e.ready
	q.version++
	q.setReady(e, false)
	q.all.remove(e)
	e.order = to
	q.all.add(e)
	q.setReady(e, ready)
}

// setTicket sets the ticket of the entry and returns the old one; nil = none.
func (q *queue) setTicket(e *entry, t *ticket) (old *ticket) {
	if old = e.ticket; old != nil {
		old.entry = nil
		q.blocked--
	}
	if e.ticket = t; t != nil {
		t.entry = e
		q.blocked++
	}
	return old
}

func (q *queue) setReady(e *entry, ready bool) {
	if e.ready == ready {
		return
	}
	e.ready = ready
	if ready {
		q.ready.add(e)
	} else {
		q.ready.remove(e)
	}
	q.clearOffered(e)
}

// newOfferRound lets every waiter get another offer.
func (q *queue) newOfferRound() { q.offerRound, q.offered = q.offerRound+1, mark{} }

func (q *queue) markOffered(e *entry) {
	e.offered, q.offered = q.offerRound+1, mark{e.order, true, true}
}

// clearOffered lets e get another offer in this round.
func (q *queue) clearOffered(e *entry) {
	e.offered = 0
	if q.offered.set && e.order.compare(q.offered.order) <= 0 {
		q.offered = mark{e.order, true, false}
	}
}

func (q *queue) wasOffered(e *entry) bool { return e.offered > q.offerRound }

// next returns the first reachable waiter that has had no offer in this round.
func (q *queue) next() *entry {
	for _, e := range q.ready[q.offered.first(q.ready):] {
		if !q.wasOffered(e) {
			return e
		}
		q.offered = mark{e.order, true, true}
	}
	return nil
}

// position returns the position of a contender, from 1; 0 = the contender does not wait.
func (q *queue) position(contender string) int {
	if e := q.find(contender); e != nil {
		return q.all.rank(e) + 1
	}
	return 0
}

// setLapse keeps a polling waiter in the queue until lapse.
func (q *queue) setLapse(e *entry, lapse simba.Instant) {
	e.lapse = lapse
	if q.nextLapse == 0 || lapse < q.nextLapse {
		q.nextLapse = lapse
	}
}

// removeLapsed removes and returns the polling waiters whose lapse time has passed.
func (q *queue) removeLapsed(now simba.Instant) (gone []*entry) {
	if q.nextLapse == 0 || now < q.nextLapse {
		return nil
	}
	q.nextLapse = 0
	for _, e := range q.all {
		switch {
		case e.ticket != nil:
		case e.lapse <= now:
			gone = append(gone, e)
		default:
			q.setLapse(e, e.lapse)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	q.version++
	// Many waiters may lapse at once, so one pass removes all of them.
	lapses := func(e *entry) bool { return e.ticket == nil && e.lapse <= now }
	q.ready = slices.DeleteFunc(q.ready, lapses)
	q.all = slices.DeleteFunc(q.all, lapses)
	for _, e := range gone {
		e.ready = false
		q.names -= len(e.contender)
		delete(q.index, e.contender)
	}
	q.shrink()
	return gone
}
