// Package monitor serves the metrics and the health of the server over HTTP.
//
//	GET /metrics ── collector ► Stats of engine, commands, resp, persist, Timed ─► promhttp
//	GET /readyz ── prober ► Backend.Owner, Commit
//
// Timed measures the requests to a store, for the metrics only, and logs its outages. The other
// packages have counters, for INFO and for the metrics. A scrape reads these counters. The rows in
// table.go define the metrics and document them.
//
// Invariants:
//
//   - A request runs on its own goroutine and holds no lock of the server for longer than INFO.
//   - The number of series is bounded. Names of mutexes are labels only if the operator lists them,
//     and then at most maxMutexes. Scripts can choose the codes of errors, but package commands
//     bounds how many codes it counts.
//   - At most one probe of the store runs at a time, and at most one begins in a second.
package monitor
