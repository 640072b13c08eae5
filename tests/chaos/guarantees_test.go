package chaos

import "time"

// guarantees are what an engine says of itself in docs/reference/guarantees.md and docs/explanation, as far
// as a history can show it. The zero value promises everything, to the nanosecond.
type guarantees struct {
	early time.Duration // a lease may end so long before its windows: the store's clock has a resolution
	late  time.Duration // it may be told, renewed and released so long after their end

	rough time.Duration // what it tells of what is left may be wrong by so much

	// A lease ends with what granted it: the server's process, or its session with the store.
	// Who was the owner then need not be it afterwards.
	endsWith lossOf
	session  time.Duration // how long after a fault that may be noticed
	givesUp  time.Duration // how long after its last contact a server that runs does so, at least

	// What was told so long before the end of the server's process may be undone by it. But no token is given
	// out again, and nobody is granted anything until every lease that may have been lost has ended.
	unwritten time.Duration

	// A lease whose grant or renewal is answered after its end is nobody's, and the server asks
	// the store again by itself, as often as that happens: such a request may have been done several times. A waiter whose time is over by
	// then may see its second grant being given back.
	again bool

	// A server that is not heard of in time is taken by the others to have granted what is its client's turn: they
	// tell of an owner who may not know of it yet, and never will if it decides otherwise when it is
	// heard of again. Of a waiter they cannot tell since when, so that they tell of its full windows each time,
	// until its server's session ends.
	presumes bool

	// What another server has renewed is counted from when the one that granted it learns of that: until somebody else
	// is granted the mutex, its owner may still renew there, though others were told that the lease is over.
	relearns bool

	// A CHECK that was answered so late that the lease may be over, counted from when it was
	// sent, says no.
	cautious bool

	// SIMBA.HISTORY is what a server did or saw: it need not have seen all that another did, and learns
	// of that by messages, which what it did itself may overtake.
	partial bool
}

// writing is how long after a grant its server may have yet to write it down, where others presume.
const writing = 250 * time.Millisecond

// trying is how long after it was sent a request may be made anew by its server: at most 10 s, the longest --backend-timeout
// here, and it may have been stopped before that.
const trying = 15 * time.Second

// lossOf is what makes a server forget what it has granted.
type lossOf uint8

const (
	nothing   lossOf = iota
	process          // its end
	connected        // its end, and every fault between it and its store
)

// sessionTimeout is what the servers of engine zookeeper ask for.
const sessionTimeout = 4 * time.Second

// documented has a line for each engine, with the settings that docs/guides ask for.
var documented = map[string]guarantees{
	"embedded": {},
	// "memory: nothing is left. Tokens grow as long as the wall clock does."
	"embedded memory": {endsWith: process},
	// "async: the last milliseconds may be lost": they are written every 10 ms, on a machine that has time for it.
	"embedded async": {unwritten: 250 * time.Millisecond},
	// Redis and the database keep whole milliseconds. Two readings of Redis' clock may differ by
	// 20 ms for its scripts; the start of a lease that a database is given beforehand lies up to 50 ms
	// after it.
	"redis": {early: 2 * time.Millisecond, late: 20 * time.Millisecond, cautious: true, again: true, partial: true},
	"mysql": {early: 2 * time.Millisecond, late: 50 * time.Millisecond, again: true, partial: true},
	// "If the server stops, or is cut off for longer than two thirds of the session timeout, the leases that it
	// granted end." "If a lease is renewed through another server, its windows are counted from when the first one
	// learns of it, at most a quarter of a second late." "What other servers tell of a lease's end is by the leader's
	// clock, its end is not": an exchange with it may take a while.
	"zookeeper": {
		late: 250*time.Millisecond + 100*time.Millisecond, rough: 100 * time.Millisecond, relearns: true,
		endsWith: connected, session: sessionTimeout + time.Second, givesUp: sessionTimeout * 2 / 3, presumes: true, again: true, partial: true,
	},
}

// contact is the longest time between the last exchange of a server of engine zookeeper with the leader and a fault: it
// shows every second that it is there, and the answer to that, which the fault prevents, may be half a second late
// on a busy machine.
const contact = time.Second + 500*time.Millisecond

// loss says that what a server has granted may end at any instant from one to the other.
type loss struct {
	server   int
	from, to instant
}

// absence says that a server may be heard of late, or not at all, from one instant to the other. If it ended, who comes
// after it keeps nothing of its own.
type absence struct {
	server   int
	from, to instant
	ended    bool
}

// parts says what a fault from one instant to another is to servers that it may have parted from the store.
func (g guarantees) parts(f fault, servers []int, from, healed instant) (losses []loss, absences []absence) {
	if g.endsWith == nothing || g.endsWith == process && !f.ofServer {
		return nil, nil
	}
	first, last := from, after(healed, g.session)
	if !f.ofServer {
		// "A server that is cut off from the ensemble gives its leases up after two thirds of the session
		// timeout", the ensemble after all of it. So it is when the ensemble itself was killed: sessions are in its log, and
		// it counts them from its start.
		first = after(from, g.givesUp-contact)
	}
	for _, s := range servers {
		absences = append(absences, absence{s, from, last, f.ofServer})
		if first < last {
			losses = append(losses, loss{s, first, last})
		}
	}
	return losses, absences
}
