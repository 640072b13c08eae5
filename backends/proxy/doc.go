// Package proxy has what the engines that keep their mutexes in a store share. Waiters are the
// waiters of this server. EventLog has the events that the server knows of. QueueSettings are
// settings that can change while the server runs.
//
//	commands ─▶ redis / mysql / zookeeper ─▶ the store
//	                │         ▲
//	                ▼         │ grants, events
//	             Waiters, EventLog ─▶ waiters and subscribers of this server
//
// The store has the state of every mutex, and each engine has its own way to read and change it.
// A reply of the store is durable, so outcomes carry no Seq: there is nothing left to commit.
//
// Invariants: a Ticket ends once, however grants, errors and the end of its wait race. A grant
// whose waiter cannot get it is handed off. The EventLog has the beginning and the end of a tenure
// once each, the beginning first.
package proxy
