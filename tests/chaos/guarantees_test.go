package chaos

import "time"

// guarantees are the documented conditions under which an engine keeps its promises, as far as a
// history can show them. The zero value promises everything, to the nanosecond.
type guarantees struct {
	// how much earlier than its windows a lease may end, by the resolution of the store's clock
	early time.Duration
	late  time.Duration // how long after its windows it may be reported, renewed and released

	imprecision time.Duration // the error of the remaining time in replies

	// A lease ends with the server's process that granted it, or with its session with the store.
	endsWith lossOf
	session  time.Duration // how long after a fault that end may be noticed
	// how long after its last contact a running server keeps its leases, at least
	givesUp time.Duration

	// The end of the server's process may undo replies of the last moments, this long. But no token
	// repeats, and there is no new grant before every lease that may have been lost has ended.
	unwritten time.Duration

	// If the store answers a grant or renewal after the end of the lease, the server repeats the
	// request. So a request may be executed several times. A waiter that times out then may see a
	// second grant that is given back.
	again bool

	// The first waiter may be on a server that others cannot reach. They then presume that it was
	// granted the mutex, and report it as the owner. That server may decide otherwise when it is
	// back. The others do not know when the lease began. So they report its full windows each time,
	// until the session of that server ends.
	presumes bool

	// A lease that was renewed through another server counts from when its own server learns of it.
	// Until the next grant, its owner may still renew there, though replies elsewhere said that it
	// is over.
	relearns bool

	// CHECK replies 0 if, counted from its sending, the lease may be over when the reply comes.
	cautious bool

	// SIMBA.HISTORY has what a server did or saw. It may miss events of other servers, and may have
	// them later than its own.
	partial bool
}

// writeDelay is how long after a grant its server may still have to write it down, where others
// presume.
const writeDelay = 250 * time.Millisecond

// retryLimit is how long after its sending a server may still repeat a request. That is at most 10
// s, the longest --backend-timeout here, and the server may have been stopped before that.
const retryLimit = 15 * time.Second

// lossOf is the event that makes a server forget its grants.
type lossOf uint8

const (
	nothing   lossOf = iota
	process          // the end of the server
	connected        // the end of the server, and every fault between it and its store
)

// sessionTimeout is the session timeout that servers of the engine zookeeper request.
const sessionTimeout = 4 * time.Second

// documented has the guarantees of each engine, with the settings that the docs require.
var documented = map[string]guarantees{
	"embedded": {},
	// "memory: nothing is left. Tokens grow as long as the wall clock does."
	"embedded memory": {endsWith: process},
	// "async: the last milliseconds may be lost": they are written every 10 ms, on a machine that
	// has time for it.
	"embedded async": {unwritten: 250 * time.Millisecond},
	// Redis and the database keep whole milliseconds. For scripts, two readings of Redis' clock may
	// differ by 20 ms. The start of a database lease is set up to 50 ms before the grant.
	"redis": {early: 2 * time.Millisecond, late: 20 * time.Millisecond, cautious: true, again: true, partial: true},
	"mysql": {early: 2 * time.Millisecond, late: 50 * time.Millisecond, again: true, partial: true},
	// A server's leases end when it stops, or is cut off for two thirds of the session timeout. The
	// windows of a lease that was renewed through another server count from when the granter learns
	// of it, at most 250 ms late. Other servers report its end by the leader's clock, and an
	// exchange with the leader may take a while.
	"zookeeper": {
		late: 250*time.Millisecond + 100*time.Millisecond, imprecision: 100 * time.Millisecond, relearns: true,
		endsWith: connected, session: sessionTimeout + time.Second, givesUp: sessionTimeout * 2 / 3, presumes: true, again: true, partial: true,
	},
}

// contactGap is the longest time between the last exchange of a server of the engine zookeeper with
// the leader and a fault. It pings every second. On a busy machine, the reply that the fault
// prevents may be half a second late.
const contactGap = time.Second + 500*time.Millisecond

// loss says that the grants of a server may end at any instant of an interval.
type loss struct {
	server   int
	from, to instant
}

// absence is an interval in which a server may be unreachable or slow. If its process ended, the
// next one keeps none of its grants.
type absence struct {
	server   int
	from, to instant
	ended    bool
}

// parts returns the effects of a fault on servers that it may have cut off from the store.
func (g guarantees) parts(f fault, servers []int, from, healed instant) (losses []loss, absences []absence) {
	if g.endsWith == nothing || g.endsWith == process && !f.ofServer {
		return nil, nil
	}
	first, last := from, after(healed, g.session)
	if !f.ofServer {
		// A server without the ensemble gives its leases up after two thirds of the session
		// timeout, the ensemble after all of it. So does a restarted ensemble: sessions are in its
		// log, and it counts them from its start.
		first = after(from, g.givesUp-contactGap)
	}
	for _, s := range servers {
		absences = append(absences, absence{s, from, last, f.ofServer})
		if first < last {
			losses = append(losses, loss{s, first, last})
		}
	}
	return losses, absences
}
