// Package engine keeps mutexes in this process: leases, fencing tokens, queues, handoff and
// expiry. It is the default backend.
//
// # From a call to its effects
//
//	Acquire ─▶ shard (lock) ─▶ mutex.acquire(step) ─▶ sequencer.record ─▶ Journal.Append
//	                              pure transition       seq, history        memory only
//	caller  ◀── Outcome with Seq ◀────────────────────────────┘
//	Commit(Seq) ─▶ Journal.Commit ─▶ fsync ─▶ sequencer.deliver ─▶ notices, wake-ups
//
// Only transitions change a mutex. A transition is a method of mutex that takes a step. The step
// has the time and the settings, and collects the effects of the transition. Transitions start no
// goroutine, take no lock of the engine and do no I/O, so tests call them directly.
//
// # Invariants
//
//   - No client sees a change before the change is durable. A result carries the Seq of the change
//     that it rests on. Notices and wake-ups wait in the sequencer until their change is durable. A
//     mutex remembers the Seq of its last change. For mutexes that are not in memory, the shard
//     remembers its own last one, because a crash could undo the change that freed them.
//   - After the recovery delay, every reachable waiter of a mutex that is free and not reserved has
//     had an offer. An offer is a grant to a blocked waiter, or a notice to a polling one. Each
//     transition that could break this ends in handOff. A blocked waiter whose lease ended before
//     its connection saw the lease is unreachable for a while: see requeue.
//   - If the end of a tenure or of a reservation leaves a mutex free and not reserved, the engine
//     announces that on the mutex's channel. It does not announce that a lease has expired.
//   - The owner is not in the queue, except during the recovery delay.
//   - A mutex without owner, queue and reservation is not in memory.
//
// # Locks
//
// shard.mu guards the mutexes of a shard with their queues, tickets and timers. sequencer.mu guards
// the sequence, the history and the unsent effects. sequencer.sending keeps notices in order while
// they are sent. Every call holds Engine.life for reading, so that Stop can wait for the calls. The
// order is life, sending, shard.mu, sequencer.mu, then the Journal's locks. Notices.Subscribed is
// called under shard.mu, Notices.Publish under sending. The engine wakes waiters under neither.
package engine
