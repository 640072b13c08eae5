// Package resp is the network layer of the server. It reads commands in RESP2, RESP3 or inline
// form, calls a Handler for each, and sends the replies. It implements pub/sub. It knows nothing of
// mutexes.
//
//	          ┌────────────── the connection's goroutine ──────────────┐
//	socket ─► reader ─► Handler.Execute ► Reply() ─► Committer ────► socket
//	             ▲         (each complete command)      (each batch)     ▲
//	             └── Wait.Await: reads on while a command is blocked     │
//	Broker.Publish ─► the connection's queue ─► the pusher ──────────────┘
//
// A connection has one goroutine. All complete commands in the buffer are a batch. The connection
// executes them in order, commits once and sends all replies in one write. A command that computes
// for long calls Conn.Yield now and then.
//
// While a command is blocked, the connection's goroutine waits in Read, so the server detects a
// disconnect at once. Received bytes stay in the buffer. To interrupt Read, another goroutine
// records a reason and moves the read deadline into the past. The reason is a wake-up, CLIENT
// UNBLOCK, a shutdown or a new timeout. The connection's goroutine acts on the reason and sets the
// next deadline.
//
// Pushes are messages and lines of MONITOR. Each connection has a bounded queue of pushes, so that
// a publisher never waits for one slow connection. The server closes a connection whose queue
// overflows. While pushes are queued, the connection has one goroutine more: the pusher, which sends
// them.
//
// # Invariants
//
//   - No reply reaches the network before the Committer has committed the changes that the reply
//     shows.
//   - If the reply to a command shows a change, the command calls Conn.ReplyAfter. Then the server
//     calls the Committer for the batch, even if the client has disconnected.
//   - A push never splits a reply. The confirmation of a SUBSCRIBE precedes the first message of
//     the subscription. The confirmation of an UNSUBSCRIBE follows the last message.
//   - The reader allocates memory for received bytes, never for an announced length. A buffer grows
//     at most to twice the received bytes, and never beyond the Limits.
//   - A connection's goroutines end with the connection.
//
// Lock order: Broker.mu or link.wmu, then pushQueue.mu. Under Server.mu, interrupts.readMu and
// pushers.mu the server takes no other lock. A goroutine that holds a lock which another connection
// may need must not call Yield.
package resp
