package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// entry is a contender's place in a queue. Its order, larger for later comers,
// never changes while it waits, whatever becomes of its connection.
type entry struct {
	contender  string
	order      uint64
	since      simba.Instant
	lapse      simba.Instant // when a polling waiter that is not heard of is forgotten
	ttl        time.Duration // what it asked for last
	transition time.Duration
	session    uint64
	ticket     *ticket // its connection waits for it; nil = it polls
	told       bool    // it had its turn since the mutex became free
	ready      bool    // it stands in queue.ready
}

// line is a list of entries by order. Coming at the end and going at the front
// cost nothing; a place is found by bisection, so a rank is exact and cheap.
type line []*entry

func (l line) rank(e *entry) int {
	i, _ := slices.BinarySearchFunc(l, e.order, func(x *entry, order uint64) int {
		return cmp.Compare(x.order, order)
	})
	return i
}

func (l *line) add(e *entry) {
	if n := len(*l); n == 0 || (*l)[n-1].order < e.order {
		*l = append(*l, e)
		return
	}
	*l = slices.Insert(*l, l.rank(e), e)
}

func (l *line) remove(e *entry) {
	i := l.rank(e)
	if i == 0 {
		(*l)[0] = nil // the array behind the slice must not keep it alive
		*l = (*l)[1:]
		return
	}
	*l = slices.Delete(*l, i, i+1)
}

// indexFrom is the length of a queue from which a map finds entries by name.
const indexFrom = 16

// queue holds those who wait for a mutex.
type queue struct {
	all     line // everyone
	ready   line // those who can be told: blocked ones, and polling ones with a subscriber
	index   map[string]*entry
	blocked int64 // how many of all wait on a connection
	// nextLapse is not later than the first lapse of a polling waiter.
	// The zero value means that no one can lapse.
	nextLapse simba.Instant
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
	q.all.add(e)
	switch {
	case q.index != nil:
		q.index[e.contender] = e
	case len(q.all) >= indexFrom:
		q.index = make(map[string]*entry, 2*indexFrom)
		for _, x := range q.all {
			q.index[x.contender] = x
		}
	}
}

func (q *queue) remove(e *entry) {
	q.setTicket(e, nil)
	q.setReady(e, false)
	q.all.remove(e)
	delete(q.index, e.contender)
}

// setTicket says whose connection waits for the entry, nil = none, and returns
// the one that did.
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
		e.told = false
	}
}

// next is the first reachable waiter that has not had its turn.
func (q *queue) next() *entry {
	for _, e := range q.ready {
		if !e.told {
			return e
		}
	}
	return nil
}

// position counts from 1; 0 means that the contender does not wait.
func (q *queue) position(contender string) int {
	if e := q.find(contender); e != nil {
		return q.all.rank(e) + 1
	}
	return 0
}

// poll gives a polling waiter until lapse to be heard of again.
func (q *queue) poll(e *entry, lapse simba.Instant) {
	e.lapse = lapse
	if q.nextLapse == 0 || lapse < q.nextLapse {
		q.nextLapse = lapse
	}
}

// lapsed removes and returns the polling waiters whose time is over.
func (q *queue) lapsed(now simba.Instant) (gone []*entry) {
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
			q.poll(e, e.lapse)
		}
	}
	for _, e := range gone {
		q.remove(e)
	}
	return gone
}
