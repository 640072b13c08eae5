// Package resp is the network layer of the server. It reads commands in RESP2, RESP3 or inline
// form, calls a Handler for each, and sends the replies. It implements pub/sub. It does not know
// what a mutex is.
//
//	          ┌────────────── the connection's goroutine ──────────────┐
//	socket ─► reader ─► Handler.Execute ► Reply() ─► Committer ────► socket
//	             ▲         (each complete command)      (each batch)     ▲
//	             └── Wait.Await: reads on while a command is blocked     │
//	Broker.Publish ─► the connection's queue ─► the pusher ──────────────┘
//
// A connection has one goroutine, which reads, executes and replies. All complete commands in the
// buffer are a batch. The connection executes them in order, commits once and sends all replies in
// one write.
//
// With Config.Poll a connection runs as a coroutine. A poller runs the coroutines of many
// connections on a few goroutines (package poll). So a coroutine must not block or compute for
// long. A command that must block calls Conn.Detach first. A command that computes for long also
// calls Conn.Yield now and then.
//
// While a command is blocked, the connection's goroutine waits in Read. So the server detects a
// disconnect at once. Bytes that arrive meanwhile stay in the buffer. To interrupt Read, another
// goroutine records a reason and moves the read deadline into the past. The reason is a wake-up,
// CLIENT UNBLOCK, a shutdown or a new idle timeout. The connection's goroutine acts on the reason
// and sets the next deadline.
//
// Pushes are messages and lines of MONITOR. Each connection has a bounded queue of pushes, so that
// a publisher never waits for one slow connection. The server closes a connection whose queue
// overflows. A pusher is a goroutine that sends queued pushes. Without a poller each connection has
// its own pusher, which ends when the queue is empty. Polled connections share a few pushers, which
// never block. A client that publishes without a pause waits until the pushers have almost caught
// up.
//
// Over TLS the connection's goroutine does the handshake first. All bytes then pass through
// crypto/tls. The server sets deadlines on the socket, not on the tls.Conn.
//
// # Invariants
//
//   - No reply reaches the network before the Committer has committed the changes that the reply
//     shows.
//   - If a command of a batch called RestOn, the server calls the Committer, also after a
//     disconnect.
//   - A push never splits a reply. The confirmation of a SUBSCRIBE precedes the first message of
//     the subscription. The confirmation of an UNSUBSCRIBE follows the last one.
//   - The reader allocates memory for received bytes, never for an announced length. A buffer grows
//     at most to twice the received bytes, and never beyond the Limits.
//   - A connection's goroutines end with the connection. The goroutines of the poller and the
//     pushers end before Shutdown returns nil.
//
// Lock order: Broker.mu or Conn.wmu, then pushQueue.mu, then pushers.mu. Conn.readMu precedes the
// locks of package poll. Under Server.mu the server takes no other lock, except when it starts the
// poller. No coroutine calls Detach or Yield while it holds a lock that another connection may
// need.
package resp
