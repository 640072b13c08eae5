// Package mysql keeps mutexes in the table simba_mutex of MySQL or MariaDB. Other servers share the
// table. So do contenders on the JVM: programs that use the JDBC code of Simba, a lock library for
// the JVM.
//
//	proxy.Engine ─▶ store ─▶ UPDATE simba_mutex … (one statement, autocommit)
//
// The store implements proxy.Store. The owner of a mutex is the one in its row. Each step that
// changes a row is one UPDATE, which uses the database's clock in UTC and matches the row only in
// the expected state. The UPDATE commits by itself. So a contender that does not get the mutex
// never blocks the owner's renewal. The token of a tenure is the row's fencing_token: see token.go.
//
// After a failover, old connections still lead to the old primary. So the store trusts a row only
// if the database accepted writes after the request was sent (see query).
//
// An UPDATE whose answer was lost may have run, or may run later. Every UPDATE carries a deadline
// on the database's clock, and does nothing after it. A grant to a waiter also carries the start of
// the lease, which is its Mark. A statement waits at most lockWait for a row that another
// transaction has locked, and tableWait for the table.
package mysql
