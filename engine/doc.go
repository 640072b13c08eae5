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
// goroutine, take no lock of the engine and do no I/O.
//
// # Invariants
//
//   - No client sees a change before the change is durable. A result carries the Seq of the change
//     that it waits for. Notices and wake-ups wait in the sequencer until their change is durable. A
//     mutex remembers the Seq of its last change. A mutex that is not in memory has the last Seq of
//     its shard, because a crash could undo the change that freed the mutex.
//   - After the recovery delay, every reachable waiter of a mutex that is free and not reserved has
//     had an offer. The exception is a mutex that is open to outsiders, which the shard's timer
//     ends. Each transition that could break this rule calls handOff. Reachable means a polling
//     waiter with a subscription, one that a script has refused, or a blocked waiter that is
//     not lost: see waitState.
//   - If the mutex is free and not reserved after the end of a tenure or reservation, the engine
//     publishes a notice on its channel. It publishes none if the lease expired, unless the mutex
//     is open to outsiders.
//   - The owner is not in the queue, except during the recovery delay.
//   - A mutex without owner, queue and reservation is not in memory, unless an outsider has asked for
//     it in the last minute.
//
// # Locks
//
// The order is Engine.life, sequencer.sending, shard.mu, sequencer.mu, then the Journal's locks.
// The engine calls Notices.Subscribed under shard.mu, and Notices.Publish under sending. It wakes
// waiters while it holds neither shard.mu nor sending.
package engine
