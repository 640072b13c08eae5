// Package redis keeps mutexes in Redis: on a single server, behind Sentinel or in a
// Cluster, shared by any number of simba-resp servers and by contenders of Simba on
// the JVM.
//
//	Acquire ─▶ pipeline ─▶ a Lua script, one atomic step on one mutex
//	   ▲                        │ reply: how the mutex stands, grants, events
//	   │                        ▼
//	 Waiters ◀── radio ◀── PUBLISH to other servers, contenders and subscribers
//
// The truth of a mutex is in Redis, and only the scripts in lua/ change it. Redis'
// clock alone counts. A script that finds the mutex free hands it on in the same step.
// These keys, in one slot by their hash tag:
//
//	simba:{m}            the lock: the owner's id, expires with the lease
//	simba:{m}:contender  the queue: contenders by arrival
//	simba:{m}:fence      the last token that anybody took
//	simba:{m}:token      the tenure's token, expires with the lease
//	simba:{m}:tenure     what the lock cannot say: windows, session, whose turn
//	simba:{m}:waiting    what the queue cannot say: who is blocked at which server, and in which order
//	simba:{m}:ended      tickets whose tenure a command ended before their server knew of it
//
// Simba's own scripts know the first four: the queue up to 3.1, the tokens from 3.3. What
// they did is found out by comparing these keys with the record. A tenure that began without
// us has its own token, or gets one at first sight. Waiters whose places they took away get
// them back by the order in their records.
//
// A node that was demoted goes on answering on old connections. So each answer comes from a
// script that writes, even if the write changes nothing (proof.go); a refusal closes all
// connections to that node (connections.go). The node that commands go to is asked whether
// the radio's connection listens there (subscriber_check.go).
//
// What happens without a request is found by looking: at the end of each lease that
// concerns this server (agenda), after each connection of the radio, and after each
// outcome that got lost. A script whose reply is lost may have run, so nothing is ever
// sent twice by itself but what Redis refused to run (NOSCRIPT, MOVED, ASK).
package redis
