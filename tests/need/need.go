// Package need skips a test if the machine lacks what the test runs. With CI=true it fails the test
// instead, so that CI leaves out nothing.
package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Hang is how long a test waits for an event that must happen. A busy machine delays everything, so
// only an event that never happens takes longer.
const Hang = 10 * time.Minute

// Await waits until holds returns true. It fails the test if that takes longer than Hang.
func Await(t TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Hang); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Hang, what)
		}
	}
}

// AtMost returns how long something may take that a user gets within d. With QUIET=true, which make
// prompt and make campaigns set, that is d. Otherwise it is at least Hang.
func AtMost(d time.Duration) time.Duration {
	if os.Getenv("QUIET") == "true" {
		return d
	}
	return max(d, Hang)
}

// TB has the methods of testing.TB that this package calls.
type TB interface {
	Helper()
	Fatalf(format string, args ...any) // does not return
	Skipf(format string, args ...any)  // does not return
}

// Program returns the path of a program. If it is missing, Program skips the test. The text names
// the Debian package to install.
func Program(t TB, name, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	// Debian installs servers in folders that PATH may lack.
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	if err != nil {
		Missing(t, "%s is not installed: apt-get install %s", name, debianPackage)
	}
	return path
}

// File skips the test if the file is missing.
func File(t TB, path, debianPackage string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		Missing(t, "%s is missing: apt-get install %s", path, debianPackage)
	}
}

// Missing skips the test. The text says what is missing, and how to install it.
func Missing(t TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf("NOT TESTED: "+format, args...)
}
