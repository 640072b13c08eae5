// Package redis keeps mutexes in Redis: on a single server, behind Sentinel or in a Cluster. Any
// number of simba-resp servers share them, and contenders of Simba on the JVM.
//
//	Acquire ─▶ pipeline ─▶ a Lua script, one atomic step on one mutex
//	   ▲                        │ reply: state of the mutex, grants, events
//	   │                        ▼
//	Waiters ◀─ subscriptions ◀─ PUBLISH to other servers, contenders and subscribers
//
// Redis has the state of a mutex, and only the scripts in lua/ change it. They read Redis' clock,
// never a server's. A script that finds the mutex free hands it off in the same step. The keys of a
// mutex share a hash tag, and so a slot:
//
//	simba:{m}            the lock: the owner's id, expires with the lease
//	simba:{m}:contender  the queue: contenders in order of arrival
//	simba:{m}:fence      the largest token so far
//	simba:{m}:token      the tenure's token, expires with the lease
//	simba:{m}:tenure     the record: what the lock cannot hold, such as windows and reservation
//	simba:{m}:waiting    what the queue cannot hold, such as each waiter's server and ticket
//	simba:{m}:ended      tickets whose tenure ended by a command before their server got the grant
//
// Simba's own scripts know only some of these: the queue up to 3.1, fence and token from 3.3. Our
// scripts compare these keys with the record, and so find what other programs did. A tenure that
// began without our scripts has its own token, or gets one when a script first finds it. A waiter
// whose queue entry another program removed gets it back, in the order of its record.
//
// A primary that was demoted goes on answering on old connections. So each answer comes from a
// script that also writes, even if the write changes nothing (writable.go). If a node refuses, the
// server closes its connections to it (connections.go). The server also checks that each subscriber
// is connected to the node that commands go to (subscriber_probe.go).
//
// Some changes happen without a request: a lease ends, a message or a reply is lost. The server
// finds them by reconciling a mutex. It does so when the end of a lease concerns this server
// (schedule.go), and when the outcome of a request is unknown. It also does so when a subscriber
// has reconnected. A script whose reply is lost may have run. So the server never repeats a request
// by itself, except when Redis refused to run it (NOSCRIPT, MOVED, ASK).
package redis
