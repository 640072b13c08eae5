// Package proxy is what the engines that keep their mutexes in a store have in
// common: who waits on this server (Waiters), what this server has seen (EventLog),
// and the settings that can change while it runs (QueueSettings).
//
//	commands ─▶ redis / mysql / zookeeper ─▶ the store
//	                │         ▲
//	                ▼         │ grants, events
//	             Waiters, EventLog ─▶ waiters and subscribers of this server
//
// The store has the truth, and every engine has its own way to ask it. A grant is
// durable when the store has said so, so outcomes carry no Seq: there is nothing
// left to settle.
package proxy
