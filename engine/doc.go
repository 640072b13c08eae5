// Package engine keeps mutexes in this process: leases, fencing tokens, queues,
// handoff and expiry. It is the default backend.
//
// # From a call to its effects
//
//	Acquire ─▶ shard (lock) ─▶ mutex.acquire(step) ─▶ sequencer.record ─▶ Journal.Append
//	                              pure transition       seq, history     memory only
//	caller  ◀── Outcome with Seq ◀────────────────────────────┘
//	Commit(Seq) ─▶ Journal.Commit ─▶ fsync ─▶ sequencer.deliver ─▶ notices, wake-ups
//
// A mutex' state changes only in transitions: methods of mutex that take a step
// (the time, the request, what the world looks like) and leave their effects in
// it. They start no goroutine, take no lock and do no I/O, so tests drive them
// directly.
//
// # Invariants
//
//   - Nothing is told before it is durable. Results carry the Seq that they rest
//     on; notices and wake-ups wait in the sequencer's unsent for theirs. A mutex
//     remembers the Seq of its last change. A shard does so for mutexes that are not
//     in memory: a crash could undo that they are free.
//   - While a mutex is free, not reserved and the quiet time is over, no reachable
//     waiter is untold: every transition that could break this ends in handOff.
//     (One whose lease was over before it was told is not reachable until it could
//     have been told, and if it could, until it shows up.)
//   - A step that leaves a mutex free and kept for nobody, other than by the end of a lease,
//     announces that on the mutex' channel.
//   - The owner is not in the queue, except in the quiet time.
//   - A mutex without owner, queue and reservation is not in memory at all.
//
// # Locks
//
// shard.mu guards the mutexes of a shard with their queues, tickets and timers.
// sequencer.mu guards the sequence, the history and the unsent; sequencer.sending keeps
// notices in order while they are sent. Engine.life is read-locked by every call,
// so that Stop can wait for them. Order: life, sending, shard.mu, sequencer.mu, then
// what the Journal locks. The Notices are asked under shard.mu (is anyone there?)
// and called under sending (tell them); waiters are woken under neither.
package engine
