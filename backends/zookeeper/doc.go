// Package zookeeper keeps mutexes in ZooKeeper (3.5 or later). It uses the recipe of Curator's
// LeaderLatch: contenders of Simba on the JVM, and those of any number of servers, elect one leader
// among them.
//
//	/simba/<mutex>/_c_<guid>-latch-<number>  ephemeral: a contender; its data is the id
//	/simba-leases/<guid>                     ephemeral: the lease of that node, see record
//	/simba-leases/session-<tag>              ephemeral: the marker of a session
//
// The first node by number is the leader's, and the others are the queue. A mutex' own node is a
// container: it is created when needed, and ZooKeeper deletes it some time after its last child.
// The token is the czxid of the owner's node. It grows even when the numbers begin again.
//
// ZooKeeper knows sessions but no leases. So the server in whose session a node was created, its
// creator, ends the lease by its own monotonic clock and deletes the node. Latch node and lease are
// created and deleted in one step. Every change names the version of the lease that its server has
// read. So a renewal through another server and the end of the lease exclude each other. The
// creator watches leases that last longer, to see what other servers do. A node whose request had
// no answer is an orphan. Its server looks for its guid until the node is certainly gone
// (orphans.go). The server keeps the node if the contender has continued with it through another
// server.
//
//	ACQUIRE   one multi: create both nodes, write the mutex' node. The answer has the zxid, the
//	          leader's clock and the number of nodes: if that is 1, no other request is needed
//	GUARD     one multi: check the latch node, write the lease at its version
//	RELEASE   one multi: delete both; if the next node is that of a blocked waiter of this server,
//	          make it the owner's in the same step
//	waiters   one watch for each mutex (watcher.go); a blocked waiter whose node is the first is
//	          woken after its lease has been written
//
// Before a server reports the end of a lease, it records the end in the ensemble. It deletes the
// node, or, if it is not the creator, writes the flag Over to the lease (markOver). Both name the
// version that was read, so a renewal under way fails and reads again. A server that counts the
// lease by its own clock may still renew it for the same owner: no lease depends on the ensemble's
// clock.
//
// A new lease node says "asking" until its creator writes the outcome. The creator does so a little
// later, since most leases are over by then. Another server treats an "asking" node as an owner's
// if it is the first and the list has not changed since its creation. Otherwise that server waits
// briefly. It counts the windows from the creation of the node, so the creator does the same.
//
// A node lives as long as its session. While the ensemble cannot be reached, every request fails.
// This server gives up the session and all its leases two thirds of the session timeout after the
// last confirmed exchange. That is before the ensemble can let another contender in. Other servers
// may renew these leases while the ensemble still has the session. So this server closes the old
// session when its timeout has passed. It uses the next session only when the old session's marker
// is gone. In the next session, the remaining waiters go to the end of the queue. A server has
// several sessions, and each mutex belongs to one of them.
//
// Differences from the other engines:
//
//   - A lease ends with the session of the server that granted it: at most one session timeout
//     after that server stops.
//   - An unreachable polling waiter whose node is the first loses its entry when another contender
//     asks, since the first node is the owner's.
//   - Nobody knows how long a JVM's leadership will last, so replies give the session timeout.
//     BREAK refuses it, since a LeaderLatch would not notice.
//
// Lock order: a key's lock before Backend.mu, which is never held during I/O. The lock of a key is
// held to change the nodes of its contender. Nobody holds two of them: BREAK and flagListeners take
// the lock of another contender's key while they hold none.
package zookeeper
