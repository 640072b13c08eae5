// Package redis keeps mutexes in Redis: on a single server, behind Sentinel or in a Cluster. Any
// number of simba-resp servers, and contenders of Simba on the JVM, share them.
//
//	Acquire ─▶ pipeline ─▶ a Lua script, one atomic step on one mutex
//	   ▲                        │ reply: state of the mutex, grants, events
//	   │                        ▼
//	Waiters ◀─ subscriptions ◀─ PUBLISH to other servers, contenders and subscribers
//
// Redis holds the state of each mutex. Our servers change it only by the scripts in lua/. The
// scripts read Redis' clock, never a server's clock. Every script but confirm.lua hands off a mutex
// that it finds free, in the same step. A server gives each wait of a client a ticket, which names
// the wait in Redis. The keys of a mutex share a hash tag, and so a slot:
//
//	simba:{m}            the lock: the owner's id, expires with the lease
//	simba:{m}:contender  the queue: contenders in order of arrival
//	simba:{m}:fence      the largest token so far
//	simba:{m}:token      the tenure's token, expires with the lease
//	simba:{m}:tenure     the record: what the lock cannot hold, such as windows and reservation
//	simba:{m}:waiting    what the queue cannot hold, such as each waiter's server and ticket
//	simba:{m}:ended      tickets whose tenure a command ended before their server got the grant
//
// Simba's own scripts use the lock and some of the other keys: up to 3.1 the queue, from 3.3 fence
// and token. Our scripts compare these keys with the record. So they find changes by other
// programs. A tenure that began without our scripts may have a token of Simba's. Otherwise our
// first script that finds the tenure gives it one. Another program may remove the queue entries of
// our waiters. Our scripts restore them in their earlier order.
//
// A demoted primary still answers on old connections, and its data may be stale. So every script
// also writes, even if the write changes nothing (writable.go). If a node refuses the write, the
// server closes its connections to that node (connections.go). The server also checks that its
// pub/sub connection leads to the same node as its commands (subscriber_probe.go).
//
// Some changes happen without a request: a lease ends, a message or a reply is lost. The server
// finds them by reconciling the mutex: reconcile.lua repairs its state and returns it
// (reconcile.go). The server reconciles a mutex at the end of each lease that concerns its clients
// (schedule.go). It also does so after its pub/sub connection was interrupted. If somebody waits
// here, it does so after every failed request too.
//
// A script whose reply is lost may have run. So the server repeats a request only if the script has
// certainly done nothing: after NOSCRIPT, MOVED, ASK, a failed dial or a missed deadline.
//
// # Files
//
//	options.go, backend.go, tasks.go         open and close the engine; its goroutines
//	ask.go, reply.go, apply.go, counts.go    a request: run a script, parse and apply its reply
//	scripts.go, lua/                         the scripts
//	scan.go                                  lists the mutexes
//	wait.go, ticket.go, wait_ender.go        a wait, from its request to its end
//	grants.go, orphans.go, recent.go         grants that arrive, and waits that could not be ended
//	reconcile.go, schedule.go                repairs without a request, and when they are due
//	upstream.go, pipeline.go, clock.go       from a script to a node, in batches, with deadlines
//	dial.go, connections.go, writable.go     connections, and how stale ones are found
//	subscriptions.go, subscriber*.go         pub/sub connections, one for each master
//	channels.go, messages.go, catch_up.go    channels, messages, and how missed ones are found
//	url.go, check.go, lasting.go             the URL, checks at the start, kinds of errors
package redis
