// Package resp is the network layer of the server. It reads commands in RESP2, RESP3 or inline
// form, calls a Handler for each, and sends the replies. It carries pub/sub and knows no mutex.
//
//	          ┌────────────── the connection's goroutine ──────────────┐
//	socket ─► reader ─► Handler.Serve ─► Reply() ─► Committer ────► socket
//	             ▲         (each complete command)      (each batch)     ▲
//	             └── Wait.Await: reads on while a command is blocked     │
//	Broker.Publish ─► the connection's queue ─► the pusher ──────────────┘
//
// A connection has one goroutine, which reads, executes and replies. All complete commands in the
// buffer are a batch. They are executed in order, committed once and answered by one write.
//
// With Config.Poll that goroutine is a coroutine, which a poller runs together with those of other
// connections (package poll). It must not block or compute for long. A command that has to calls
// Conn.Detach first. A command that computes for long also calls Conn.Yield now and then.
//
// A blocked command keeps the goroutine in Read. So the server detects a disconnect at once, and
// bytes that arrive meanwhile stay in the buffer. Other goroutines interrupt Read for a wake-up,
// CLIENT UNBLOCK, a shutdown or a new idle timeout. They record the reason and move the read
// deadline into the past. The connection's goroutine finds the reason and sets the next deadline.
//
// Pushes (messages, MONITOR) go through a bounded queue, so that a publisher never waits for a
// connection. A connection whose queue overflows is closed. A client that publishes without a
// pause waits for the pushers, which send what is queued. A pusher is a goroutine that ends when
// the queue is empty. Connections of a poller share a few pushers, which write what each socket
// accepts without blocking.
//
// Over TLS the same goroutine does the handshake first. All bytes then pass through crypto/tls.
// Deadlines are set below it.
//
// # Invariants
//
//   - No reply reaches the network before the Committer has committed the changes that it shows.
//   - The Committer is called for every batch that rests on changes, also after a disconnect.
//   - Replies and pushes alternate only between whole frames, in the order of their causes. The
//     confirmation of a SUBSCRIBE precedes the first message. That of an UNSUBSCRIBE follows the
//     last one.
//   - A length that a client claims reserves no memory. A buffer grows with the received bytes, at
//     most to twice their size, and never beyond the Limits.
//   - Every goroutine ends with its connection. The poller's end before Shutdown returns nil.
//
// Lock order: Broker.mu or Conn.wmu, then pushQueue.mu, then pushers.mu. Conn.readMu, then the
// locks of package poll. Server.mu is a leaf, except for the start of the poller. No coroutine
// changes its goroutine while it holds a lock that another connection may need.
package resp
