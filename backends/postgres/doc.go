// Package postgres keeps mutexes in the table simba_mutex of PostgreSQL 13 or later, for the core of
// store engines in package proxy. Other servers share the table.
//
//	proxy.Engine ─▶ store ─▶ BEGIN; SELECT … FOR NO KEY UPDATE; UPDATE …; COMMIT
//	      ▲                        │ committed
//	      │                        ▼
//	      └──── watch ◀─ LISTEN ◀─ pg_notify of the mutexes that changed, in a transaction of its own
//
// Each step is one message with several statements, which PostgreSQL runs as one transaction. It
// locks the row first, and reads the clock after that. So the step decides by the row and the time at
// which it has effect, however long it waited for other transactions.
//
// The token of a tenure is the next value of the sequence simba_token, so that the row of a free
// mutex can be deleted. A step takes it after it has locked the row, so tokens grow.
//
// Two servers with two primaries would both grant. PostgreSQL does not stop an old primary that
// comes back after a failover, but each promotion begins a timeline with a higher number. A server
// refuses a node whose timeline is lower than one that it has seen.
package postgres
