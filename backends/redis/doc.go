// Package redis keeps mutexes in Redis: on a single server, behind Sentinel or in a Cluster. Any
// number of simba-resp servers share the mutexes, also with contenders of Simba, a lock library for
// the JVM.
//
//	Acquire ─▶ pipeline ─▶ a Lua script, one atomic step on one mutex
//	   ▲                        │ reply: state of the mutex, grants, events
//	   │                        ▼
//	Waiters ◀─ subscriptions ◀─ PUBLISH to other servers, contenders and subscribers
//
// Redis holds the state of each mutex. Our servers change it only by the scripts in lua/. The
// scripts read Redis' clock, never a server's clock. Every script but confirm.lua hands off a mutex
// that it finds free, in the same step. A server gives each wait of a client a ticket, which names
// the wait in Redis. The keys of a mutex share a hash tag, and therefore a slot:
//
//	simba:{m}            the lock: the owner's id, expires with the lease
//	simba:{m}:contender  the queue: contenders in order of arrival
//	simba:{m}:fence      the largest token so far
//	simba:{m}:token      the tenure's token, expires with the lease
//	simba:{m}:tenure     the record of the mutex, such as its windows and its reservation
//	simba:{m}:waiting    a record of each waiter, such as its server and its ticket
//	simba:{m}:ended      tickets of waiters that were granted the mutex, but lost it by a command
//	                     before their server received the grant
//
// Simba's own scripts use the lock. Those of Simba up to 3.1 also use the queue, and those from 3.3
// on the fence and the token. Our scripts compare these keys with the record, to find changes by
// other programs. A tenure that began without our scripts keeps its token of Simba, or gets a token
// from our first script that finds it. If another program removes the queue entries of our waiters,
// our scripts restore them in their order.
//
// A demoted primary still answers on old connections, and its data may be stale. Therefore every
// script also writes, and the server drops connections to a node that refuses the write
// (writable.go). It also checks that its pub/sub connection leads to the same node as its commands
// (subscriber.probe).
//
// The state can become wrong without a request: a lease ends, or a message or a reply is lost. So
// the server reconciles mutexes: reconcile.lua repairs the state of a mutex and returns it
// (reconcile.go). The server reconciles a mutex at the end of each lease that concerns its clients
// (schedule.go), and after an interruption of its pub/sub connection. If clients of this server
// wait for the mutex, the server also reconciles it after every failed request.
//
// A script whose reply is lost may have run. The server repeats a request only if the script has
// certainly done nothing. This is so after NOSCRIPT, MOVED and a failed dial. It is also so if the
// script replied that it began after the deadline of its request.
//
// # Files
//
//	options.go, backend.go                   open and close the engine; its requests
//	ask.go, reply.go, apply.go               a request: run a script, parse and apply its reply
//	scripts.go, lua/                         the scripts
//	scan.go                                  lists the mutexes
//	wait.go, wait_ender.go                   a wait, from its request to its end
//	grants.go, chores.go                     grants that arrive, and waits that could not be ended
//	reconcile.go, schedule.go                repairs without a request, and when they are due
//	upstream.go, pipeline.go, migration.go   send scripts to nodes, in batches and with deadlines
//	connections.go, writable.go              connections, and how stale ones are found
//	subscriptions.go, subscriber.go          pub/sub connections, one for each master
//	channels.go, messages.go                 channels, messages, and how missed ones are found
//	url.go, check.go, lasting.go             the URL, checks of the settings, kinds of errors
package redis
