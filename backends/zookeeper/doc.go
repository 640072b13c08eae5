// Package zookeeper keeps the mutexes in ZooKeeper (3.5 or later), in the race that
// Curator's LeaderLatch runs there: contenders of Simba on the JVM and those of any
// number of servers elect one leader between them.
//
//	/simba/<mutex>/_c_<guid>-latch-<number>   ephemeral: a place in the race, its data the contender's id
//	/simba-leases/<guid>                      ephemeral: what this server adds to it, see record
//
// The first node by number is the leader's; the others are the queue. A mutex' own node is a
// container, made when it is missing and gone by itself some time after its last
// node. The token is the czxid of the owner's node: it grows though the numbers
// begin anew.
//
// ZooKeeper knows no leases, only sessions. So the server whose session a node belongs to,
// its keeper, ends the lease by its own monotonic clock and deletes the node.
// Latch node and lease are made and deleted in one step, and every change names the
// version of the lease that it knows: a renewal through another server and the end of
// the lease cannot both come true. The keeper watches the leases that last, so it learns
// what other servers do. What a request may have done and nobody was told
// of is looked for by its guid until it is known to be gone (settle.go), unless its contender
// has gone on with it elsewhere.
//
//	ACQUIRE   one multi: make both nodes, write the mutex' node. Its answer has the zxid, the
//	          leader's clock and the number of nodes: if that is 1, nothing else is asked
//	GUARD     one multi: the latch node exists, write the lease at its version
//	RELEASE   one multi: delete both; and if the next node is a blocked waiter's of this server,
//	          make it the owner's in the same step
//	others    one watch a mutex for all who wait or subscribe here (follow.go); a blocked
//	          waiter whose node is the first is told when its lease has been written so
//
// Who tells that a lease is over makes it so first: the node is deleted, or, where that is not for him to do or takes too
// long, the lease says that it is over from then on (conclude). Both are done at the version that was read, so that a renewal which
// comes later finds another. What counts the lease may renew it still, as no lease depends on the ensemble's clock.
//
// A new lease node says "asking" until its keeper writes what came of it, a little later,
// since most leases are over by then. Another server takes it for an owner's if the list
// has not changed since the node was made and it is the first; else it waits a moment. It counts the windows from when
// the node was made, so its keeper does the same, however late it finds the node the first.
//
// A node lives as long as its session. While the ensemble cannot be reached nothing is
// confirmed, so every request fails; two thirds of the session timeout after the last
// confirmed exchange this server takes the session and all its leases for lost,
// before the ensemble can let another in. Other servers may go on with its leases as long as the ensemble knows it. So it
// is closed when its timeout has passed, and the next session, in which those who still wait take new places at the
// end of the queue, is used when the marker of the one before (/simba-leases/session-<tag>) is gone. A server has some sessions side by side, and
// each mutex belongs to one of them.
//
// What differs from the other engines: a lease ends with its server's session, at the latest
// the session timeout after the server; a polling waiter whose turn it is but that
// cannot be reached keeps its place only until somebody else asks, for the first node
// is the owner's; what is left of a JVM's leadership nobody knows, so a session's timeout is told,
// and BREAK refuses it, since a LeaderLatch does not notice.
//
// Lock order: Backend.mu is taken last and held for no I/O. Whoever changes a contender's
// nodes holds the gate of its place; nobody holds two, but BREAK and the flag of a
// listener take the gate of another's place while they hold none.
package zookeeper
