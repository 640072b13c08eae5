// Package simbatest starts real simba-resp servers, clients and stores for end-to-end tests. It
// builds each program from this module when a test first needs it. If the tests run with the race
// detector, so do the programs.
//
//	func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		s := simbatest.Start(t)
//		… s.Addr …
//	}
//
// When a test ends, the package kills each process that it started for the test. On Linux, the
// kernel kills them if the process of the test dies first.
//
// No function sleeps for a fixed time. Functions wait for a line of the log, a reply, or an exit.
package simbatest
