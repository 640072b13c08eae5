// Package monitor serves the metrics and the health of the server over HTTP.
//
//	GET /metrics ── collector ► Stats of engine, commands, resp, persist, proxy ─► promhttp
//	GET /readyz ── prober ► Backend.Owner, Commit
//
// This package counts nothing. The parts of the server count, for INFO and for the metrics, and a
// scrape reads their figures. The rows of table.go are the metrics and their documentation.
//
// Invariants:
//
//   - A request runs on its own goroutine and holds no lock of the server for longer than INFO.
//   - The number of series is bounded. Names of mutexes are labels only if the operator lists them,
//     and then at most maxMutexes. Package commands bounds the codes of errors that scripts choose.
//   - At most one probe asks the store at a time, and at most one a second.
package monitor
