// Package simbatest starts real simba-resp servers, and other programs, for tests of what talks
// to them. The server is built from the source beside it when a test first asks for one,
// with the race detector if the test has it.
//
//	func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		s := simbatest.Start(t)
//		… s.Addr …
//	}
//
// What was started is killed when its test ends, and on Linux by the kernel should the
// test's process die before that.
package simbatest
