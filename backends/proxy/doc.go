// Package proxy is the core of the engines that keep their mutexes in a store. An Engine on a Store
// is such an engine: the Store has the tenures, and the Engine has everything else, above all the
// queue of this server's waiters. A Store that has one queue for all servers is a Queue, as that of
// ZooKeeper is. The engine of Redis has its steps in scripts and only embeds a Core.
//
//	commands ─▶ Engine ─▶ mutexState ─▶ Store: Take, Renew, Pass, Read (one step, atomic)
//	                          ▲   │
//	                  refresh │   └──▶ handOff: one step from the old owner to the next waiter
//	                          └── timer (refreshDelay), or Hooks.Changed
//
// The store has the state of every mutex. When it replies, the change is already committed, so
// outcomes carry no Seq. The store's settings decide which changes its own crash can lose.
//
// A server has a mutexState for each mutex that its clients wait for, subscribe to or send a
// request for. Only the goroutine that holds the mutexState's lock sends steps of the mutex and
// changes the queue by what they return, so a server serves its own waiters in order. The owner's
// requests get the lock first, and a renewal of the owner needs no lock (see Engine.Guard). If
// several servers compete, the first to ask after the end of a lease gets the mutex. A mutex that
// another transaction has locked does not delay other mutexes (see Engine.step).
//
// With a Queue, Take also queues the contender, and State.Next names who gets a free mutex. The
// server of that waiter serves it (see Engine.serveNext): it grants the mutex to a blocked waiter,
// and reserves it for a polling one. A handoff takes two steps. The Engine's own queue then only
// says how to reach this server's waiters, and when polling ones lose their entries.
//
// A step whose reply was lost is an orphan: it may have been done, or may be done later, until its
// Horizon. The next refresh reads the mutex when no step is under way. If it finds the Mark of an
// orphaned grant, it gives the lease to its waiter. If the waiter is gone, it hands off the mutex
// (see reconcile).
//
// Invariants: a Ticket, which stands for one blocked ACQUIRE, ends exactly once, even if grants,
// errors and the end of its wait race. If a waiter cannot receive its grant, the engine hands the
// mutex off. The history.Log has the beginning and the end of a tenure at most once each, and never
// the end before the beginning. Locks are taken in the order mutexState.lock, Engine.mu,
// Waiters.mu. Engine.mu is held during Store.Watch and Unwatch, and Queue.Listen and WatchAll.
package proxy
