package chaos

import "time"

// guarantees are the documented exceptions from an engine's promises that a history can show. The
// zero value has no exceptions: every promise holds to the nanosecond.
type guarantees struct {
	// how much earlier than its windows a lease may end, because of the resolution of the store's
	// clock
	early time.Duration
	late  time.Duration // how long after its windows a server may act on a lease

	imprecision time.Duration // error of the remaining time in replies

	forgets bool // the end of a server's process ends the leases that it granted

	// session is how long the nodes of a server may remain in the store after a fault of the server
	// or the store. 0 = the store has no such nodes.
	session time.Duration

	// Another member that takes over counts a lease from the moment when it has received the entry, or
	// from its own start. So a lease may end as much later as the entry was late, or begin anew.
	takesOver bool

	// When the server's process ends, it may lose changes that it has already acknowledged. The
	// field is the greatest age of a lost change. No token repeats even so. The next process makes
	// no grant before all leases have ended that may be lost.
	unwritten time.Duration

	// If the lease of a waiter ends before its grant is durable, the waiter returns to the queue without
	// a reply. So a wait may begin several tenures, each after the whole lease of the one before.
	requeues bool

	// The server repeats a grant or renewal if the store answers only after the end of the lease.
	// So a request may take effect several times. A waiter whose wait times out may see a second
	// grant to itself, which the server takes back.
	again bool

	// The first waiter may be on a server that other servers cannot reach. The others then presume
	// that this server granted the mutex, and report the waiter as the owner. They do not know when
	// the lease began. So they report its full windows each time, until the session of the
	// unreachable server ends. When that server is back, it may turn out that it did not grant the
	// mutex to that waiter.
	presumes bool

	// Only the granter ends a lease. While it is away, other servers report the owner, and can end the
	// tenure by RELEASE and BREAK if the granter has stopped, until its session has ended.
	lingers bool

	// CHECK replies 0 if the lease may be over when the reply arrives.
	cautious bool

	// SIMBA.HISTORY has only events that this server caused or saw. It may lack events of other
	// servers, or show them out of order.
	partial bool
}

// writeDelay is how long after a grant the server may still have to write the grant to the store.
// It matters if other servers presume grants.
const writeDelay = 250 * time.Millisecond

// retryLimit is the longest time from a client's request to its last repetition by the server. The
// longest --backend-timeout here is 10 s. A server may also have been frozen before its first
// attempt.
const retryLimit = 15 * time.Second

// settled is how long after a fault of a cluster members may still receive old entries, or elect a
// leader.
const settled = 3 * time.Second

// sessionTimeout is the ZooKeeper session timeout that the servers request.
const sessionTimeout = 4 * time.Second

// documented has the guarantees of each engine and variant. docs/reference/guarantees.md is their
// source.
var documented = map[string]guarantees{
	"embedded": {requeues: true},
	// On a busy machine, entries reach the other members late, and these elect another leader without a
	// fault of the test.
	"cluster": {requeues: true, late: 500 * time.Millisecond, takesOver: true},
	// A crash loses all leases.
	"embedded memory": {requeues: true, forgets: true},
	// A crash loses the last 10 ms or so, more on a busy machine.
	"embedded async": {requeues: true, unwritten: 250 * time.Millisecond},
	// Redis and the databases keep whole milliseconds. In scripts, two readings of Redis' clock may differ
	// by 20 ms. A lease on MySQL may begin up to 50 ms after its grant.
	"redis":    {early: 2 * time.Millisecond, late: 20 * time.Millisecond, cautious: true, again: true, partial: true},
	"mysql":    {early: 2 * time.Millisecond, late: 50 * time.Millisecond, again: true, partial: true},
	"postgres": {early: 2 * time.Millisecond, again: true, partial: true},
	// Only the granter ends a lease, by a write. Other servers measure the rest of the windows by the
	// clock of ZooKeeper's leader. An exchange with the leader may take a while.
	"zookeeper": {
		late: 250 * time.Millisecond, imprecision: 100 * time.Millisecond, lingers: true,
		session: sessionTimeout + time.Second, presumes: true, again: true, partial: true,
	},
}

// loss is an interval. A server's leases may end at any instant of it.
type loss struct {
	server   int
	from, to instant
}

// absence is an interval in which a server may be unreachable or slow. In a cluster, any of them may be.
type absence struct {
	server   int
	from, to instant
	ended    bool // its process ended, and the next process keeps none of its grants
}

// parts returns the effects of a fault on servers that may be cut off from the store.
func (g guarantees) parts(f fault, servers []int, from, healed instant) (losses []loss, absences []absence) {
	if g.takesOver {
		absences = append(absences, absence{from: from, to: after(healed, settled)})
	}
	for _, s := range servers {
		if g.session != 0 {
			absences = append(absences, absence{s, from, after(healed, g.session), f.ofServer})
		}
		if g.forgets && f.ofServer {
			losses = append(losses, loss{s, from, healed})
			absences = append(absences, absence{s, from, healed, true})
		}
	}
	return losses, absences
}
