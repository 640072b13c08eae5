// Package stores starts real stores for tests: Redis alone, as a cluster or under
// Sentinel, MariaDB, and ZooKeeper alone or as an ensemble, from Debian's packages,
// on private ports of the loopback interface and in temporary folders. Link stands
// between a client and a store and plays the network's faults.
//
// A store is ready when its function returns: it has answered. It is killed when its
// test ends, and by the kernel should the test's process die before that. Where a
// program is missing the test is skipped and says so, and with CI=true it fails.
//
// All functions must be called from the test's own goroutine; the methods of one
// Server or Link may be called from any goroutine.
package stores
