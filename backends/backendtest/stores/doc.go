// Package stores starts real stores for tests: Redis alone, as a cluster or under Sentinel,
// MariaDB, and ZooKeeper alone or as an ensemble. They run from Debian's packages, on private ports
// of the loopback interface and in temporary folders. A Link between a client and a store simulates
// network faults.
//
//	client ─▶ Link ─▶ Server (or the primary of a Pair)
//
// A store is ready when its function returns: it has answered. It is killed when its test ends, and
// by the kernel if the test's process ends before that. If a program is missing, the test is
// skipped with the reason. With CI=true it fails.
//
// All functions must be called from the test's own goroutine. The methods of a Server or Link may
// be called from any goroutine.
package stores
