// Package resp is the wire of the server: it reads commands in RESP2, RESP3 or
// inline form, hands them to a Handler and sends what the handler replies. It
// carries pub/sub and knows no mutex.
//
//	          ┌────────────── the connection's goroutine ──────────────┐
//	socket ─► reader ─► Handler.Serve ─► Reply() ─► Committer ────► socket
//	             ▲         (each complete command)      (each batch)     ▲
//	             └── Wait.Await: reads on while a command is blocked     │
//	Broker.Publish ─► the connection's queue ─► the pusher ──────────────┘
//
// A connection has one goroutine, which reads, executes and replies. All complete commands in the buffer are a
// batch: they are executed in order, settled once and answered by one write.
//
// That goroutine is one of Go's own, or, with Config.Poll, a coroutine that a poller runs together with
// those of other connections (package poll). Nothing may wait there, or compute for long. A command that
// has to calls Conn.Detach first; one that computes for long calls Conn.Yield now and then, too.
//
// A blocked command keeps that goroutine in Read, so a client that leaves is
// noticed at once, and bytes that arrive meanwhile wait in the buffer. Whoever has
// news for a goroutine in Read (a wake-up, CLIENT UNBLOCK, a shutdown, a new idle
// timeout) records it and moves the read deadline into the past; the goroutine
// looks what it is, and sets the deadline that fits now.
//
// Pushes (messages, MONITOR) go through a bounded queue, so that a publisher never
// waits for a connection: who overflows it is cut. One that publishes without end waits for the pushers. A pusher sends them. That is a goroutine of its own, which lives only
// while there is something in the queue; or, for connections of a poller, one of a few that go from one to the next
// and write what each socket takes at once, so that a message to thousands holds up nobody.
//
// Over TLS the same goroutine does the handshake first; what is read and written then
// goes through crypto/tls, and deadlines are set below it.
//
// # Invariants
//
//   - No reply reaches the network before the Committer has settled what it rests on.
//   - The Committer settles what a command rests on, also when its client is gone.
//   - Replies and pushes alternate only between whole frames, and in the order in
//     which they came about: the confirmation of a SUBSCRIBE comes before the
//     first message, that of an UNSUBSCRIBE after the last.
//   - A length that a client claims reserves no memory: a buffer grows with the
//     bytes that came, at most to twice their size, and never beyond the Limits.
//   - Every goroutine ends with the connection it belongs to, the poller's when Shutdown returns nil.
//
// Lock order: Broker.mu or Conn.wmu, then pushQueue.mu, then pushers.mu; Conn.park, then the locks of
// package poll. Server.mu is a leaf, but for the start of the poller. No lock that another connection
// may want is held while a coroutine goes on elsewhere.
package resp
