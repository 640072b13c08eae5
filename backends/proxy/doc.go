// Package proxy has the common parts of the engines that keep their mutexes in a store. Waiters are
// the blocked waiters of this server. EventLog has the events that the server knows of.
// QueueSettings can change while the server runs. Timed measures the requests to a store. Checks
// finds settings of the store that break a promise.
//
//	commands ─▶ redis / mysql / zookeeper ─▶ the store
//	                │         ▲
//	                ▼         │ grants, events
//	             Waiters, EventLog ─▶ waiters and subscribers of this server
//
// The store has the state of every mutex. When it replies, the change is already committed, so
// outcomes carry no Seq. The store's settings decide which changes its own crash can lose.
//
// Invariants: a Ticket, which stands for one blocked ACQUIRE, ends exactly once, even if grants,
// errors and the end of its wait race. If a waiter cannot receive its grant, the engine hands the
// mutex off. The EventLog has the beginning and the end of a tenure at most once each, and never
// the end before the beginning.
package proxy
