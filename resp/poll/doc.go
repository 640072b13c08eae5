// Package poll serves many connections by few goroutines, where there is epoll. Each connection runs a
// coroutine. A Poller asks its own epoll instance which sockets have something to read, and resumes the
// coroutines of these one after the other. If there are many, helpers run some. So no goroutine is
// parked or woken for a request, and one call of epoll serves many.
//
// Nothing may wait on those goroutines, or compute for long: a coroutine that has to says so first.
//
//	          ┌─ looped: in the poller's rounds ◄────────────────┐
//	epoll ───►│    │ LineUp              │ Detach               │ there is something to read,
//	signal ──►│    ▼                     ▼                      │ or a deadline has passed
//	          │  lined: one behind     away: on a goroutine     │
//	          │  the other             of its own               │
//	          └────┴─────────────────────┴──► idle, in Read ─────┘
//
// Yield puts a coroutine of the rounds behind the others, for a later round. One that is away waits
// until a round lets it go on there. A signal is a deadline that has passed, or Close.
//
// Elsewhere than on Linux New returns errors.ErrUnsupported.
//
// Lock order: a Conn's deadlines, then the Poller's mu, which is a leaf.
package poll
