// Package mysql keeps mutexes in the table simba_mutex of MySQL or MariaDB, shared with
// other servers and with the JDBC contenders of Simba on the JVM.
//
//	Acquire ──▶ line ──▶ store ──▶ UPDATE simba_mutex … (one statement, autocommit)
//	              ▲  │
//	         look │  └──▶ passOn: one UPDATE from the old owner to the next waiter
//	              └── timer, at the contention timing of Simba
//
// The row is the truth. Every change of it is one UPDATE that commits by itself, by
// the database's clock in UTC, and that matches only in the state for which it is
// meant. No transaction is left open, so nobody's renewal waits for a loser.
//
// The token of a tenure is the row's fencing_token, or its version where the table has no such
// column (token.go). Grants and releases raise both, renewals of this package don't. A
// contender on the JVM counts the version up at renewals too, so without the column its
// tenures change their token with each.
//
// The table has no queue. A line is the queue of one mutex on this server, and what
// this server knows of it; it exists while someone here waits, follows or asks. What
// may pass the mutex on does so one at a time, in the line's gate. So first come, first
// served is kept among the waiters of one server. Between servers, and against
// contenders on the JVM, whoever asks first after the end of a lease is served.
//
// A row is believed only if its server took writes meanwhile (query): after a failover,
// old connections still lead to the old primary. A row that another transaction holds
// costs other mutexes nothing (lockWaits).
//
// An UPDATE whose answer was lost may have been done, or may be done later (a ghost). It
// carries a fence, the database's time after which it does nothing, so it cannot
// surprise anyone after its deadline. A grant to a waiter carries its start, by which
// it is recognized: the next look gives it to its waiter or passes it on.
package mysql
