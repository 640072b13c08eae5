// Package poll serves many connections by few goroutines, where there is epoll. Each connection
// runs a coroutine. A Poller asks its own epoll instance which sockets are readable, and resumes
// the coroutines of these one after the other. Helpers run some of many. So no goroutine is parked
// or woken for a request, and one call of epoll serves many.
//
// A coroutine must not block or compute for long on these goroutines. It detaches itself first.
//
//	          ┌─ shared: in the poller's rounds ◄────────────────┐
//	epoll ───►│    │ DetachInOrder       │ Detach               │ the socket is readable,
//	signal ──►│    ▼                     ▼                      │ or a deadline has passed
//	          │  ordered: one after    detached: on a           │
//	          │  the other             goroutine of its own     │
//	          └────┴─────────────────────┴──► idle, in Read ─────┘
//
// Yield moves a shared coroutine behind the others, to a later round. A detached one pauses until a
// round resumes it. A signal is a deadline that has passed, or Close.
//
// On systems other than Linux New returns errors.ErrUnsupported.
//
// Lock order: a Conn's deadlines, then the Poller's mu. No lock is taken under mu.
package poll
