package stores

// Pair is a primary server and its replica behind one address, the Link's. The replica follows by
// the store's own replication.
type Pair interface {
	// Link leads to the primary. Clients must use no other address.
	Link() *Link
	// Primary returns the server that takes writes.
	Primary() *Server
	// Other returns the server that is not the primary. It is the replica or, between Failover and
	// Rejoin, the old primary.
	Other() *Server
	// Failover promotes the replica without losing an acknowledged write, and directs new
	// connections to the new primary. The old primary keeps its connections, refuses writes, and no
	// longer replicates.
	Failover()
	// Rejoin makes the old primary the replica of the new primary. It returns when the replica has
	// caught up. Then Failover may be called again.
	Rejoin()
}
