// Package zookeeper keeps mutexes in an ensemble of ZooKeeper servers (3.5 or later). The clients
// of all simba-resp servers of an ensemble compete for the same mutexes. The package uses the
// recipe of Curator's LeaderLatch. So programs that use Simba, a lock library for the JVM, compete
// for these mutexes too.
//
//	/simba/<mutex>/_c_<guid>-latch-<number>  ephemeral: a contender's latch node; its data is
//	                                         the contender id
//	/simba-leases/<guid>                     ephemeral: the latch node's lease node, see record
//	/simba-leases/session-<tag>              ephemeral: the marker of a session; its data is the
//	                                         session timeout in milliseconds
//
// The first latch node by number is the owner's, or that of a polling waiter with a reservation.
// The other latch nodes are the queue. The node /simba/<mutex> is a container: the engine creates
// it when needed, and ZooKeeper deletes it some time after the deletion of its last child. The
// fencing token is the czxid of the owner's latch node: the id of the transaction that created the
// node. It grows even when the numbers begin again in a new container.
//
// ZooKeeper has sessions but no leases. The server in whose session a latch node was created is the
// node's creator. It ends the lease by its own monotonic clock and deletes the node. One
// transaction creates a latch node and its lease node, or deletes both. Every change of a lease
// node names the version that the changing server has read. So a renewal through another server and
// the end of the lease exclude each other. To notice such a renewal, the creator watches a lease
// node from 250 ms after its creation on (watchDelay).
//
// A request to create or delete a node may have no answer. The node is then an orphan: it may exist
// although no client knows of it. The server that made the request looks for the node until the
// node is certainly gone (orphans.go). The server keeps the node if the contender has continued
// with it through another server.
//
// These are the requests of each command. A multi is a transaction of ZooKeeper.
//
//	ACQUIRE   one multi: create both nodes, write the mutex's node. The answer has the token, the
//	          clock of the ensemble's leader and the number of latch nodes. If the
//	          number is 1, the contender owns the mutex, and no other request is needed
//	GUARD     one multi: check the latch node, write the lease node at its version
//	RELEASE   one multi: delete both nodes; if the next node is that of a blocked waiter of this
//	          server, also make it the owner's
//	waiters   one watch for each mutex (watcher.go). When the node of a blocked waiter becomes the
//	          first, the server writes the lease node and then wakes the waiter
//
// Before a server reports the end of a lease, it records the end in the ensemble. It deletes the
// node, or writes the flag Over to the lease node (markOver). Both requests name the version that
// the server has read. So a renewal at the same time fails, and the renewing server reads the lease
// node again. By the renewing server's own clock the lease may not have ended yet. Then that server
// may still renew the lease for the same owner, in spite of the flag Over. So the end of a lease
// does not depend on the ensemble's clock.
//
// A new lease node has the kind "asking" until its creator writes the outcome of the ACQUIRE. Until
// then, another server treats the contender as the owner only under two conditions. Its latch node
// must be the first, and the list of latch nodes must not have changed since the node's creation.
// Otherwise the other server waits briefly for the outcome. Both servers count the windows from the
// creation of the node.
//
// A node lives as long as its session. This server gives up the session and all its leases two
// thirds of the session timeout after the last confirmed exchange with the ensemble's leader. That
// is before the ensemble can let another contender in. The ensemble may keep the session for
// longer, and other servers may have renewed its leases. So only the ensemble ends the session.
// This server uses a new session only when the old session's marker is gone. It then queues the
// remaining waiters again, at the end of the queue.
//
// A renewal through another server does not prolong the session. So that server renews only if the
// session certainly lives until the end of the new lease. Each heartbeat of a session writes its
// marker. The other server compares the marker's zxid with those of its own heartbeats, and so
// learns how old the last heartbeat is at most (heartbeat.go).
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
// Lock order: a key's lock before Backend.mu. Backend.mu is never held during I/O. A goroutine that
// changes a contender's nodes holds the lock of that contender's key. No goroutine holds two of
// these locks. BREAK and flagListeners also lock only the key of the contender whose node they
// change.
package zookeeper
