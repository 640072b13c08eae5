// Package simbatest starts real simba-resp servers, and clients and stores, for end-to-end tests.
// It builds the server from the source beside it when a test first needs one, with the race
// detector if the test has it.
//
//	func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		s := simbatest.Start(t)
//		… s.Addr …
//	}
//
// A process is killed when its test ends. On Linux the kernel kills it if the test's process dies
// first.
//
// Nothing here sleeps and hopes. Functions that wait look for a line of the log, a reply, or an
// exit code.
package simbatest
