package stores

// TB is what a store needs of its caller: a testing.TB, or a program that is no test.
type TB interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)                 // does not return
	Fatalf(format string, args ...any) // does not return
	Skipf(format string, args ...any)  // does not return
	Cleanup(func())                    // called when the test ends, the last first
	TempDir() string                   // a new one each time, removed when the test ends
}
