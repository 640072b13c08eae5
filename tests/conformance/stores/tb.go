package stores

// TB has the methods that a store calls. A testing.TB is a TB. A program that is not a test may
// implement TB.
type TB interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)                 // does not return
	Fatalf(format string, args ...any) // does not return
	Skipf(format string, args ...any)  // does not return
	Cleanup(func())                    // called when the test ends, the last first
	TempDir() string                   // a new folder each time, removed when the test ends
}
