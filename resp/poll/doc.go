// Package poll serves many connections by few goroutines, where there is epoll. A Poller knows by an
// epoll instance of its own which sockets have something to read. Each connection runs a coroutine:
// the poller runs those that have something to do one after the other, on its own goroutine or, if
// there are many, on a helper's. So a request costs one read, one write and a share of a look at the
// kernel; no goroutine is parked or woken for each.
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
// Elsewhere than on Linux New returns errors.ErrUnsupported.
//
// Lock order: a Conn's deadlines, then the Poller's mu, which is a leaf.
package poll
