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
// Only transitions change a mutex. They are methods of mutex that take a step: the time, the
// request and the state of the world. They leave their effects in the step. They start no
// goroutine, take no lock of the engine and do no I/O, so tests call them directly.
//
// # Invariants
//
//   - No client sees a change before it is durable. Results carry the Seq of the change that they
//     rest on. Notices and wake-ups wait in the sequencer for theirs. A mutex remembers the Seq of
//     its last change. A shard does so for mutexes that are not in memory, because a crash could
//     undo the change that freed them.
//   - While a mutex is free and not reserved, and the recovery delay is over, every reachable
//     waiter has had an offer. An offer is a grant to a blocked waiter, or a notice to a polling
//     one. Each transition that could break this ends in handOff. A blocked waiter whose lease
//     ended unseen is unreachable until that lease is durable, or longer: see requeue.
//   - A step that frees a mutex and reserves it for no waiter announces that on the mutex's
//     channel, unless a lease has expired.
//   - The owner is not in the queue, except during the recovery delay.
//   - A mutex without owner, queue and reservation is not in memory.
//
// # Locks
//
// shard.mu guards the mutexes of a shard with their queues, tickets and timers. sequencer.mu
// guards the sequence, the history and the unsent effects. sequencer.sending keeps notices in
// order while they are sent. Every call holds Engine.life for reading, so that Stop can wait for
// the calls. The order is life, sending, shard.mu, sequencer.mu, then the Journal's locks.
// Notices.Subscribed is called under shard.mu, Notices.Publish under sending. Waiters are woken
// under neither.
package engine
