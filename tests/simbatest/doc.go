// Package simbatest starts real simba-resp servers, clients and stores for end-to-end tests. It
// builds the server when a test first needs one, from the module of the tests. If the test runs
// with the race detector, so does the server.
//
//	func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		s := simbatest.Start(t)
//		… s.Addr …
//	}
//
// The package kills each process that it started when the test ends. On Linux, the kernel kills the
// process if the test's own process dies first.
//
// No function sleeps for a fixed time. A function that waits does so for a line of the log, a
// reply, or an exit code.
package simbatest
