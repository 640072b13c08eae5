package stores

// A Pair is a primary and its replica behind one address, the Link's. Each server is a
// real one, and the replica follows by the store's own replication.
type Pair interface {
	// Link is the way to the primary. Clients know no other address.
	Link() *Link
	// Primary returns the server that takes writes.
	Primary() *Server
	// Other returns the server that is not the primary: its replica or, between Failover
	// and Rejoin, the old primary.
	Other() *Server
	// Failover makes the replica the primary, without losing an acknowledged write, and
	// leads new connections to it. The old primary lives on: it refuses writes, is fed no
	// longer, and keeps the connections that it has.
	Failover()
	// Rejoin makes the old primary the replica of the new one, and returns when it has
	// caught up. Failover may be called again after it.
	Rejoin()
}
