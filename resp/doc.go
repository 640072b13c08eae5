// Package resp is the network layer of the server. It reads commands in RESP2, RESP3 or inline
// form, calls a Handler for each, and sends the replies. It carries pub/sub and knows no mutex.
//
//	          ┌────────────── the connection's goroutine ──────────────┐
//	socket ─► reader ─► Handler.Execute ► Reply() ─► Committer ────► socket
//	             ▲         (each complete command)      (each batch)     ▲
//	             └── Wait.Await: reads on while a command is blocked     │
//	Broker.Publish ─► the connection's queue ─► the pusher ──────────────┘
//
// A connection has one goroutine, which reads, executes and replies. All complete commands in the
// buffer are a batch. They are executed in order, committed once and answered by one write.
//
// With Config.Poll that goroutine is a coroutine, which a poller runs together with those of other
// connections (package poll). It must not block or compute for long. A command that must block
// calls Conn.Detach first. A command that computes for long also calls Conn.Yield now and then.
//
// A blocked command keeps the goroutine in Read. So the server detects a disconnect at once. Bytes
// that arrive meanwhile stay in the buffer. Other goroutines interrupt Read for a wake-up,
// CLIENT UNBLOCK, a shutdown or a new idle timeout. They record the reason and move the read
// deadline into the past. The connection's goroutine finds the reason and sets the next deadline.
//
// Pushes are messages and lines of MONITOR. They go through a bounded queue, so that a publisher
// never waits for one slow connection. A connection whose queue overflows is closed. A pusher is a
// goroutine that sends queued pushes. Without a poller each connection has its own, which ends when
// the queue is empty. Connections of a poller share a few pushers, which never block. A client that
// publishes without a pause waits until the pushers have almost caught up.
//
// Over TLS the same goroutine does the handshake first. All bytes then pass through crypto/tls.
// Deadlines are set below it.
//
// # Invariants
//
//   - No reply reaches the network before the Committer has committed the changes that it shows.
//   - The Committer is called for every batch that called RestOn, also after a disconnect.
//   - A push never splits a reply. Both keep the order of their causes. The confirmation of a
//     SUBSCRIBE precedes the first message. That of an UNSUBSCRIBE follows the last one.
//   - The reader allocates for received bytes, never for an announced length. A buffer grows at
//     most to twice the received bytes, and never beyond the Limits.
//   - Every goroutine ends with its connection. The poller's end before Shutdown returns nil.
//
// Lock order: Broker.mu or Conn.wmu, then pushQueue.mu, then pushers.mu. Conn.readMu, then the
// locks of package poll. Server.mu is a leaf, except for the start of the poller. No coroutine
// calls Detach or Yield while it holds a lock that another connection may need.
package resp
