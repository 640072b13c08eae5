package mysql

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// line is what this server knows of a mutex that someone here waits for, follows, or
// asks for right now. The table has no queue, so this is the order in which this
// server's own waiters have their turns.
//
// Whoever may pass the mutex on does so in the gate: it is for one at a time, and
// the table is asked there. Backend.mu guards the rest and is held for no I/O. Since a
// GUARD that waits has a gate of its own, two statements at most wait for a locked row.
type line struct {
	mutex    string
	gate     gate
	renewing gate // of GUARDs that wait for the row

	// Of the one in the gate.
	seen  row // what the table last showed
	known bool

	// Guarded by Backend.mu.
	refs     int
	followed bool // someone subscribes to what happens to the mutex
	ghosts   []ghost
	fails    int      // looks in a row that failed
	token    uint64   // the last token that this server knows of; 0 = none
	entries  []*entry // in order
	index    map[string]*entry
	reserved *entry    // the polling waiter whose turn it is
	until    time.Time // when that turn ends
	end      time.Time // of the lease that was seen last
	last     string    // who owned it last
	freed    string    // who gave it up last, while it is free and that is not announced; "" = nobody
	lookAt   time.Time // when to look at the table if there is reason to; zero = not known
	timer    *time.Timer
	awake    bool // the timer's goroutine runs, and sets the timer when it is done
}

// entry is a contender's place. It is blocked as long as the waiters have its ticket.
type entry struct {
	contender string
	order     uint64
	since     time.Time
	lapse     time.Time // when a polling waiter that is not heard of is forgotten
	// toldAt is 1 more than the version at which it had its turn: each waiter has one
	// each time the mutex becomes free, and a new tenure has a new version.
	toldAt uint64
}

// ghost is a change that nobody knows of: its answer was lost, or nobody could be told.
// One that gives a waiter a lease is known by the owner and the start. One that gives a
// mutex free has no owner: it is waited for as long as it may come.
type ghost struct {
	owner string
	at    int64
	dead  int64 // if it isn't there at this time of the database, it will never be
	lease lease
}

// errBusy is why a request fails that could not even ask the store.
var errBusy = errors.New("too many requests for the mutex are waiting for the database")

// hold returns the line of a mutex and keeps it until drop.
func (b *Backend) hold(mutex string) *line {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[mutex]
	if l == nil {
		l = &line{mutex: mutex}
		b.lines[mutex] = l
	}
	l.refs++
	return l
}

// drop lets a line go, and sees to it that it is looked at if there is reason to.
func (b *Backend) drop(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.refs--
	b.armLocked(l)
	if l.refs == 0 && len(l.entries) == 0 && !l.followed && len(l.ghosts) == 0 && l.reserved == nil {
		l.disarm()
		delete(b.lines, l.mutex)
	}
}

// owns reports whether a contender is the owner as far as this server knows.
func (b *Backend) owns(l *line, contender string) bool {
	b.mu.Lock()
	last, end := l.last, l.end
	b.mu.Unlock()
	if last != "" {
		return last == contender && time.Now().Before(end)
	}
	e, ok := b.eventLog.Last(l.mutex)
	return ok && e.Kind == simba.EventAcquired && e.Owner == contender
}

// join gives a contender a place, or keeps the one that it has, and reports whether
// it is new.
func (b *Backend) join(l *line, contender string) (fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.joinLocked(l, contender)
}

func (b *Backend) joinLocked(l *line, contender string) (fresh bool) {
	e := l.index[contender]
	if fresh = e == nil; fresh {
		b.order++
		e = &entry{contender: contender, order: b.order, since: time.Now()}
		l.entries = append(l.entries, e)
		if l.index == nil {
			l.index = make(map[string]*entry)
		}
		l.index[contender] = e
	}
	b.refreshLocked(l, e)
	return fresh
}

// refreshLocked gives a polling waiter until its lapse to be heard of again.
func (b *Backend) refreshLocked(l *line, e *entry) {
	from := time.Now()
	if l.end.After(from) {
		from = l.end
	}
	e.lapse = from.Add(b.QueueGrace())
}

func (l *line) removeLocked(e *entry) {
	i, ok := slices.BinarySearchFunc(l.entries, e, byOrder)
	if !ok {
		return
	}
	l.entries = slices.Delete(l.entries, i, i+1)
	delete(l.index, e.contender)
	if l.reserved == e {
		l.reserved = nil
	}
}

func byOrder(a, b *entry) int {
	switch {
	case a.order < b.order:
		return -1
	case a.order > b.order:
		return 1
	}
	return 0
}

// position counts from 1; 0 means that the contender does not wait.
func (b *Backend) position(l *line, contender string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := l.index[contender]
	if e == nil {
		return 0
	}
	i, _ := slices.BinarySearchFunc(l.entries, e, byOrder)
	return i + 1
}

// pollingLocked returns those who wait without a connection. It costs nothing if there
// are none.
func (b *Backend) pollingLocked(l *line) (list []*entry) {
	if len(l.entries) == b.waiters.Count(l.mutex) {
		return nil
	}
	for _, e := range l.entries {
		if b.waiters.Find(l.mutex, e.contender) == nil {
			list = append(list, e)
		}
	}
	return list
}

// lapse forgets the polling waiters whose time is over.
func (b *Backend) lapse(l *line) {
	var gone []simba.Event
	now := time.Now()
	b.mu.Lock()
	if l.reserved != nil && !now.Before(l.until) {
		l.reserved = nil
	}
	for _, e := range b.pollingLocked(l) {
		if !now.Before(e.lapse) && l.reserved != e {
			l.removeLocked(e)
			gone = append(gone, simba.Event{Kind: simba.EventLeft, Mutex: l.mutex, Owner: e.contender, Reason: "lapsed"})
		}
	}
	b.mu.Unlock()
	b.eventLog.Announce(gone...)
}

// reachableLocked reports whether a waiter can be told of its turn.
func (b *Backend) reachableLocked(l *line, e *entry) bool {
	return b.waiters.Find(l.mutex, e.contender) != nil ||
		b.notices.Subscribed(simba.ContenderChannel(l.mutex, e.contender))
}

// nextLocked is the first reachable waiter that has not had its turn since the
// holder's tenure, or since the mutex is free.
func (b *Backend) nextLocked(l *line, from holder) *entry {
	for _, e := range l.entries {
		if from.free() && e.toldAt == from.version+1 && b.waiters.Find(l.mutex, e.contender) == nil {
			continue
		}
		if b.reachableLocked(l, e) {
			return e
		}
	}
	return nil
}

// heir is who gets the mutex from a holder: a blocked waiter with its ticket, a
// polling one without, or nobody.
func (b *Backend) heir(l *line, from holder) (*entry, *proxy.Ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.nextLocked(l, from)
	if e == nil {
		return nil, nil
	}
	return e, b.waiters.Find(l.mutex, e.contender)
}

// mayTake reports whether a contender may take the mutex while it is free: nobody
// else has his turn, and no one who can be told stands before it.
func (b *Backend) mayTake(l *line, contender string, version uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.reserved != nil {
		return l.reserved.contender == contender
	}
	first := b.nextLocked(l, holder{version: version})
	own := l.index[contender]
	return first == nil || own != nil && own.order <= first.order
}

// alone reports whether nobody but the contender has to do with the mutex here, so
// that it may take it without another look.
func (b *Backend) alone(l *line, contender string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.reserved != nil && l.reserved.contender != contender {
		return false
	}
	return len(l.entries) == 0 || len(l.entries) == 1 && l.entries[0].contender == contender
}

// ahead reports whether a waiter that can be told stands before the contender.
func (b *Backend) ahead(l *line, contender string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range l.entries {
		if e.contender == contender {
			return false
		}
		if b.waiters.Find(l.mutex, e.contender) != nil {
			return true
		}
	}
	return false
}

// claim ends the turn of a contender that comes for the mutex.
func (b *Backend) claim(l *line, contender string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.reserved != nil && l.reserved.contender == contender {
		l.reserved = nil
	}
}

// kept is for how long a free mutex is kept for the one whose turn it is.
func (b *Backend) kept(l *line) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.reserved == nil {
		return 0
	}
	return roundUp(time.Until(l.until))
}

// Queue implements simba.Backend: of this server's waiters.
func (b *Backend) Queue(_ context.Context, mutex string, count int) ([]simba.QueueEntry, simba.Seq, error) {
	if b.ctx.Err() != nil {
		return nil, 0, simba.ErrStopped
	}
	if err := b.checkNames(mutex, ""); err != nil {
		return nil, 0, err
	}
	l := b.hold(mutex)
	defer b.drop(l)
	b.lapse(l)
	b.mu.Lock()
	defer b.mu.Unlock()
	list, now := make([]simba.QueueEntry, 0, min(count, len(l.entries))), time.Now() // one instant for all: they keep their order
	for i, e := range l.entries[:min(count, len(l.entries))] {
		list = append(list, simba.QueueEntry{
			Contender: e.contender, Position: i + 1, Waiting: now.Sub(e.since),
			Blocked: b.waiters.Find(mutex, e.contender) != nil,
		})
	}
	return list, 0, nil
}
