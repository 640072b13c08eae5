// Package zookeeper keeps mutexes in an ensemble of ZooKeeper servers (3.5 or later). The clients
// of all simba-resp servers of an ensemble compete for the same mutexes. The package uses the
// recipe of Curator's LeaderLatch. So programs that use Simba, a lock library for the JVM, compete
// for these mutexes too.
//
//	/simba/<mutex>/_c_<guid>-latch-<number>  a contender's latch node; its data is the contender id
//	/simba-leases/<guid>                     the latch node's lease node, see record
//	/simba-leases/session-<tag>              the marker of a session; a server has four sessions, and
//	                                         all its nodes of a mutex are in one of them
//	/simba-leases/inbox-<tag>/<id>           a request of another server, see request
//
// These nodes are ephemeral. Their parents are containers: ZooKeeper deletes them some time after
// their last child. The latch nodes in the order of their numbers are the queue. The contender of
// the first one owns the mutex, unless its lease node says that it polls. The fencing token is the
// czxid of the owner's latch node: the id of the transaction that created the node.
//
// The package is a proxy.Queue. The store changes nodes, ends leases, keeps sessions and answers
// other servers. The proxy.Engine has the blocked requests, subscriptions, reservations, events and
// notices. It decides when the first waiter gets a free mutex, or loses its entry.
//
// One writer: while a server runs, only it creates, changes and deletes the nodes of its session.
// It is their creator. A latch node never changes, because Curator watches the node ahead only
// once. The creator ends a lease by its own monotonic clock, by deleting both nodes in one multi,
// which is a transaction of ZooKeeper. Until then other servers report the owner.
//
//	ACQUIRE   Take: one multi creates both nodes. If it shows one latch node, the contender owns the
//	          mutex. Otherwise a second multi makes the node a polling waiter's, or deletes it
//	          (NOQUEUE). It checks that a node ahead exists, so a first node is never taken back.
//	          The node of a blocked waiter stays as it is
//	GUARD     Renew: one multi checks the latch node and writes the lease node
//	RELEASE   Pass: one multi deletes both nodes, and shows whether anybody waits
//	waiters   one watch for each mutex (watch.go). When the node of a blocked waiter is the first,
//	          other servers report it as the owner. Pass begins the windows without a change of
//	          nodes, and a timer soon writes when they began
//
// A client may ask any server. A server that did not create the contender's node asks the creator
// (requests.go) by a request node, which a multi creates that checks the marker's version. The
// creator acts and answers in one multi. Without an answer in time, the server deletes the request
// at version 0 and replies TRYAGAIN, so a late request does nothing. The creator renews an owner's
// lease and grants a free mutex to the first waiter. It ends any other queue entry of a contender
// that asks to wait elsewhere, and the asking server makes a new one.
//
// The holder of mutex.lock changes this server's nodes of a mutex. So steps of the Engine, requests
// of other servers and ends of leases exclude each other. The lock is not held while a node is
// created. Until its step decides what a new entry becomes, everybody else leaves it alone. A step
// that needs another server returns a proxy.Elsewhere: the Engine asks without any lock, and makes
// the request again.
//
// A step runs in its own goroutine, and the Engine waits for it until a deadline. The goroutine
// goes on until it knows the outcome, or until the session is over, and holds the lock so long.
// ZooKeeper executes the requests of a session in order, also after a reconnect. So a repeated
// multi shows whether an earlier attempt was executed.
//
// A server gives its session up two thirds of the session timeout after the last confirmed write,
// before the ensemble can let another contender in, and sends nothing more in it. When the
// session's marker is gone, it reports the lost entries (Hooks.Lost) and uses a new session. A
// server that stops marks its session, and leaves it to its timeout if a client owns a mutex in it.
// Then other servers may delete the nodes for RELEASE and BREAK.
//
// An unreachable polling waiter whose node is the first loses its entry if another contender wants
// the mutex, since an owner's node must be the first. A program on the JVM keeps the mutex for an
// unknown time, so replies give the session timeout as the time left.
//
// Lock order: the Engine's mutexState.lock, mutex.lock, Engine.mu, store.mu, session.mu.
package zookeeper
