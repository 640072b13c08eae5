// Package proxy has the common parts of the engines that keep their mutexes in a store. Waiters are
// the waiters of this server. EventLog has the events that the server knows of. QueueSettings are
// settings that can change while the server runs. Timed measures the requests to a store.
//
//	commands ─▶ redis / mysql / zookeeper ─▶ the store
//	                │         ▲
//	                ▼         │ grants, events
//	             Waiters, EventLog ─▶ waiters and subscribers of this server
//
// The store has the state of every mutex, and each engine has its own way to read and change it.
// Nothing is left to commit after the store's reply, so outcomes carry no Seq. The store's settings
// decide what its own crash can lose.
//
// Invariants: a Ticket ends exactly once, even if grants, errors and the end of its wait race. If a
// waiter cannot receive its grant, the mutex is handed off. The EventLog has the beginning and the
// end of a tenure at most once each, the beginning first.
package proxy
