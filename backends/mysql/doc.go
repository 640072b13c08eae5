// Package mysql keeps mutexes in the table simba_mutex of MySQL or MariaDB. It shares the table
// with other servers and with Simba's JDBC contenders on the JVM.
//
//	Acquire ─▶ mutexState ─▶ store ─▶ UPDATE simba_mutex … (one statement, autocommit)
//	               ▲   │
//	       refresh │   └──▶ handOff: one UPDATE from the old owner to the next waiter
//	               └── timer, at Simba's contention timing
//
// The row decides. Each change of a row is one UPDATE, which uses the database's clock in UTC. The
// UPDATE commits by itself, and matches the row only in the expected state. The engine leaves no
// transaction open. So no renewal waits for a contender that did not get the mutex.
//
// The token of a tenure is the row's fencing_token, or its version if the table has no such column
// (token.go). Grants and releases raise both. This engine's renewals do not. A contender on the JVM
// also increments version when it renews. So without the column its token changes with each
// renewal.
//
// The table has no queue. mutexState has the queue of one mutex on this server, and what this
// server knows of the mutex. A mutexState exists while a client here waits, subscribes or has a
// request. Only the holder of its lock hands off the mutex. So the waiters of one server are served
// in order. Between servers, and against contenders on the JVM, the first to ask after the end of a
// lease gets it.
//
// The engine believes a row only if the server took writes after the request was sent (query).
// After a failover, old connections still lead to the old primary. A row that another transaction
// has locked does not delay other mutexes (lockWaits).
//
// An UPDATE whose answer was lost is an orphan: it may have run, or may run later. Every UPDATE
// carries a deadline on the database's clock, and does nothing after it. A grant to a waiter also
// carries the start of the lease, which identifies the grant. If the next refresh finds such a
// lease, it gives the lease to its waiter, or hands off the mutex (reconcile).
package mysql
