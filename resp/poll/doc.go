// Package poll serves many connections with few goroutines, by epoll. Each connection has a
// coroutine. A Poller works in rounds. In a round it asks its own epoll instance which sockets are
// readable, and resumes their coroutines one after the other. If many are readable, helper
// goroutines run some of the coroutines. So no goroutine is parked or woken for a request, and one
// call of epoll serves many requests.
//
// Before a coroutine blocks or computes for long, it must detach itself.
//
//	          ┌─ shared: in the poller's rounds ◄────────────────┐
//	epoll ───►│    │ DetachInOrder       │ Detach               │ the socket is readable,
//	signal ──►│    ▼                     ▼                      │ or a deadline has passed
//	          │  ordered: one after    detached: on a           │
//	          │  the other             goroutine of its own     │
//	          └────┴─────────────────────┴──► idle, in Read ─────┘
//
// Yield moves a shared coroutine to a later round, after the others. A detached coroutine that
// yields pauses until a round resumes it. A passed deadline and Close signal a coroutine, and the
// next round runs it.
//
// Lock order: a Conn's deadlines, then the Poller's mu. No lock is taken under mu.
package poll
