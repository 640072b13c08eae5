// Package stores starts real stores for tests: Redis alone, as a cluster or under Sentinel,
// MariaDB, and ZooKeeper alone or as an ensemble. They run from Debian's packages, on private ports
// of the loopback interface and in temporary folders. A Link between a client and a store simulates
// network faults.
//
//	client ─▶ Link ─▶ Server (or the primary of a Pair)
//
// A store has answered, and so is ready, when its function returns. It is killed when its test
// ends. If the test's process ends before that, the kernel kills the store. If a program is
// missing, the test is skipped with the reason. With CI=true the test fails.
//
// All functions must be called from the test's own goroutine. The methods of a Server or Link may
// be called from any goroutine.
package stores
