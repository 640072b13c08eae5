package chaos

import "time"

// guarantees are the documented exceptions of an engine from its promises, as far as a history can
// show them. The zero value has no exceptions: every promise holds to the nanosecond.
type guarantees struct {
	// how much earlier than its windows a lease may end, by the resolution of the store's clock
	early time.Duration
	late  time.Duration // how long after its windows a lease may be reported, renewed and released

	imprecision time.Duration // the error of the remaining time in replies

	// The event that ends the leases granted by a server: the end of its process, or of its session
	// with the store.
	endsWith lossOf
	session  time.Duration // how long after a fault the leases may end
	// how long at least a running server keeps its leases after its last contact with the store
	givesUp time.Duration

	// The end of the server's process may undo the replies of the last moments, at most this long.
	// But no token repeats. There is no new grant before every lease that may be lost has ended.
	unwritten time.Duration

	// The server repeats a grant or renewal if the store answers only after the end of the lease.
	// So a request may take effect several times. A waiter that then times out may see a second
	// grant of its own, which the server gives back.
	again bool

	// The first waiter may be on a server that other servers cannot reach. The others then presume
	// that this server granted the mutex, and report the waiter as the owner. The server may decide
	// otherwise when it is back. The others do not know when the lease began. So they report its
	// full windows each time, until the session of that server ends.
	presumes bool

	// An owner may renew through a server that is not the granter of its lease. The renewed windows
	// then begin when the granter learns of the renewal. Until the next grant, the owner may still
	// renew at the granter, even if other servers replied that the lease is over.
	relearns bool

	// CHECK replies 0 if the lease may be over when the reply arrives.
	cautious bool

	// SIMBA.HISTORY of a server has what this server did or saw. It may lack events of other
	// servers, or show them after later events of its own.
	partial bool
}

// writeDelay is how long after a grant its server may still have to write the grant to the store.
// It matters if other servers presume grants.
const writeDelay = 250 * time.Millisecond

// retryLimit is how long after its sending a server may still repeat a request. The longest
// --backend-timeout here is 10 s. The rest is for a server that was frozen before it began.
const retryLimit = 15 * time.Second

// lossOf is the event that makes a server forget its grants.
type lossOf uint8

const (
	nothing   lossOf = iota
	process          // the end of the server
	connected        // the end of the server, and every fault between the server and its store
)

// sessionTimeout is the ZooKeeper session timeout that the servers request.
const sessionTimeout = 4 * time.Second

// documented has the guarantees of each engine and variant. Quoted sentences are promises of the
// docs.
var documented = map[string]guarantees{
	"embedded": {},
	// "memory: nothing is left. Tokens grow as long as the wall clock does."
	"embedded memory": {endsWith: process},
	// "async: the last milliseconds may be lost". The server writes every 10 ms, later on a busy
	// machine.
	"embedded async": {unwritten: 250 * time.Millisecond},
	// Redis and MySQL keep whole milliseconds. In scripts, two readings of Redis' clock may differ
	// by 20 ms. A lease on MySQL may begin up to 50 ms before its grant.
	"redis": {early: 2 * time.Millisecond, late: 20 * time.Millisecond, cautious: true, again: true, partial: true},
	"mysql": {early: 2 * time.Millisecond, late: 50 * time.Millisecond, again: true, partial: true},
	// A server's leases end when it stops, or when it has no contact for two thirds of the session
	// timeout. The granter of a lease learns of a renewal through another server at most 250 ms
	// late, and the new windows begin then. Other servers report the lease's end by the clock of
	// ZooKeeper's leader. An exchange with the leader may take a while.
	"zookeeper": {
		late: 250*time.Millisecond + 100*time.Millisecond, imprecision: 100 * time.Millisecond, relearns: true,
		endsWith: connected, session: sessionTimeout + time.Second, givesUp: sessionTimeout * 2 / 3, presumes: true, again: true, partial: true,
	},
}

// contactGap is the longest time between a server's last exchange with ZooKeeper's leader and a
// fault. The server pings every second. On a busy machine, the reply that the fault prevents may be
// half a second late.
const contactGap = time.Second + 500*time.Millisecond

// loss says that the grants of a server may end at any instant of an interval.
type loss struct {
	server   int
	from, to instant
}

// absence is an interval in which a server may be unreachable or slow. If its process ended, the
// next process keeps none of its grants.
type absence struct {
	server   int
	from, to instant
	ended    bool
}

// parts returns the effects of a fault on the servers that it may have cut off from the store.
func (g guarantees) parts(f fault, servers []int, from, healed instant) (losses []loss, absences []absence) {
	if g.endsWith == nothing || g.endsWith == process && !f.ofServer {
		return nil, nil
	}
	first, last := from, after(healed, g.session)
	if !f.ofServer {
		// Without contact, a server gives up its leases after two thirds of the session timeout.
		// The ensemble ends the session after the whole timeout. A restarted ensemble finds the
		// sessions in its log, and counts the timeout from its start.
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
