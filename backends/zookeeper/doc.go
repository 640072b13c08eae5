// Package zookeeper keeps mutexes in an ensemble of ZooKeeper servers (3.5 or later). The clients
// of all simba-resp servers of an ensemble compete for the same mutexes. The package uses the
// recipe of Curator's LeaderLatch. So programs that use Simba, a lock library for the JVM, compete
// for these mutexes too.
//
//	/simba/<mutex>/_c_<guid>-latch-<number>  ephemeral: a contender's latch node; its data is the
//	                                         contender id
//	/simba-leases/<guid>                     ephemeral: the latch node's lease node, see record
//	/simba-leases/session-<tag>              ephemeral: the marker of a session; a server has four, and
//	                                         all nodes of a mutex are in one of them
//	/simba-leases/inbox-<tag>/<id>           ephemeral: a request of another server, see request
//
// The latch nodes in the order of their numbers are the queue. The contender of the first one owns
// the mutex, unless its lease node says that it polls. So the ensemble decides, and no reader waits
// for a decision. The fencing token is the czxid of the owner's latch node: the id of the
// transaction that created the node. All nodes that are not ephemeral are containers: ZooKeeper
// deletes them some time after their last child.
//
// One writer: while a server runs, only it creates, changes and deletes the nodes of its session. It
// is their creator. A latch node never changes, because Curator watches the node ahead only once.
// The creator ends a lease by its own monotonic clock, by deleting both nodes in one step. Until
// then other servers report the owner, so nobody sees an end that a renewal follows.
//
// These are the requests of each command. A multi is a transaction of ZooKeeper.
//
//	ACQUIRE   one multi: create both nodes, write the mutex's node. If the answer shows one latch
//	          node, the contender owns the mutex. Otherwise a second multi makes the node a polling
//	          waiter's, or deletes it (NOQUEUE). It also checks that a node ahead exists, so a node
//	          that was the first is never taken back
//	GUARD     one multi: check the latch node, write the lease node
//	RELEASE   one multi: delete both nodes
//	waiters   one watch for each mutex (watcher.go). When the node of a blocked waiter is the first,
//	          its server wakes the waiter, and later writes when the windows began
//
// A client may ask any server. A server that did not create the contender's node asks the creator
// (requests.go). It creates a request node in a multi that checks the marker's version, and watches
// the node. The creator acts and answers in one multi. If the answer does not come in time, the
// server deletes the request at version 0 and replies TRYAGAIN. So a late request does nothing.
//
// Each mutex has a lock (mutex.go). Its holder changes nodes, and decides from the list of nodes who
// gets the mutex. So a waiter that is granted the mutex, a waiter that leaves and a lease that ends
// exclude each other. The lock is not held while a node is created or another server is asked. An
// entry that is being created has no child yet, and everybody else leaves it alone.
//
// Each client request runs in its own goroutine. The client waits for it until a deadline. The
// goroutine goes on until it knows the outcome of what it has sent, or until the session is over, and
// holds the lock so long. ZooKeeper executes the requests of a session in order, also after a
// reconnect. So a repeated multi shows whether an earlier attempt was executed. What is due later, or
// has failed, tend does by a timer.
//
// A node lives as long as its session. A server gives its session up two thirds of the session
// timeout after the last confirmed write. That is before the ensemble can let another contender in.
// From then on it sends nothing in that session. When the session's marker is gone, it publishes the
// ends of its leases, uses a new session, and queues the remaining waiters again.
//
// A server that stops marks its session, and leaves it to its timeout if a client owns a mutex in
// it. Then other servers may delete the nodes for RELEASE and BREAK, in a multi that checks the
// marker's version.
//
// Differences from the other engines:
//
//   - A lease ends with the session of the server that granted it: at most one session timeout
//     after that server stops.
//   - An unreachable polling waiter whose node is the first loses its queue entry when another
//     contender asks, since an owner's node must be the first.
//   - A program on the JVM keeps the mutex for an unknown time, so replies give the session timeout
//     as the time left. BREAK refuses to end such a tenure, since a LeaderLatch would not notice.
//
// Lock order: mutex.lock before Backend.mu before session.mu and Waiters.mu.
package zookeeper
