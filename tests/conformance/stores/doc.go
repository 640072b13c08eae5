// Package stores starts real stores for tests: Redis alone, as a cluster or under Sentinel,
// MariaDB, PostgreSQL, PgBouncer, etcd, and ZooKeeper alone or as an ensemble. They use the programs of Debian's packages,
// ports of the loopback interface and temporary folders. A Link between a client and a store
// simulates network faults.
//
//	client ─▶ Link ─▶ Server (or the primary of a Pair)
//
// When the function of a store returns, the store is ready. It is killed at the end of its test. If
// the test's process ends early, Linux kills the store. If a program is missing, the function skips
// the test and logs the reason. With CI=true it fails the test.
//
// All functions must be called from the test's own goroutine. The methods of Server and Link are
// safe for concurrent use.
package stores
