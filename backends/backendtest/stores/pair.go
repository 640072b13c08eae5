package stores

// Pair is a primary and its replica behind one address, the Link's. Both are real servers. The
// replica follows by the store's own replication.
type Pair interface {
	// Link leads to the primary. Clients know no other address.
	Link() *Link
	// Primary returns the server that takes writes.
	Primary() *Server
	// Other returns the server that is not the primary: its replica or, between Failover and
	// Rejoin, the old primary.
	Other() *Server
	// Failover promotes the replica without losing an acknowledged write, and directs new
	// connections to it. The old primary keeps running and keeps its connections. It refuses
	// writes, and no longer replicates.
	Failover()
	// Rejoin makes the old primary the replica of the new one. It returns when the replica has
	// caught up. Then Failover may be called again.
	Rejoin()
}
