// Package mysql keeps mutexes in the table simba_mutex of MySQL or MariaDB. Other servers share the
// table. So do contenders on the JVM: programs that use the JDBC code of Simba, a lock library for
// the JVM.
//
//	Acquire ─▶ mutexState ─▶ store ─▶ UPDATE simba_mutex … (one statement, autocommit)
//	               ▲   │
//	       refresh │   └──▶ handOff: one UPDATE from the old owner to the next waiter
//	               └── timer (refreshDelay)
//
// The owner of a mutex is the one in its row. Each change of a row is one UPDATE, which uses the
// database's clock in UTC and matches the row only in the expected state. The UPDATE commits by
// itself. So a contender that does not get the mutex never blocks the owner's renewal.
//
// The token of a tenure is the row's fencing_token, or its version if the table has no such column:
// see token.go.
//
// The table has no queue. A server has a mutexState for each mutex that its clients wait for,
// subscribe to or send a request for. The mutexState has the queue of this server. Only the
// goroutine that holds the mutexState's lock hands off the mutex, so a server serves its own
// waiters in order. If several servers or contenders on the JVM compete, the first to ask after the
// end of a lease gets the mutex.
//
// After a failover, old connections still lead to the old primary. So the engine trusts a row only
// if the database accepted writes after the request was sent (see query). A row that another
// transaction has locked does not delay other mutexes (see lockWaits).
//
// An UPDATE whose answer was lost is an orphan: it may have run, or may run later. Every UPDATE
// carries a deadline on the database's clock, and does nothing after it. A grant to a waiter also
// carries the start of the lease, which identifies the grant. The next refresh reads the row again.
// If it finds the lease of an orphaned grant, it gives the lease to its waiter. If the waiter is
// gone, it hands off the mutex (see reconcile).
package mysql
