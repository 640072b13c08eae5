// Package need skips a test if this machine lacks what the test runs. With CI=true the test fails
// instead, so that CI leaves out nothing.
package need

import (
	"os"
	"os/exec"
	"path/filepath"
)

// TB has the methods that this package calls. A testing.TB has them.
type TB interface {
	Helper()
	Fatalf(format string, args ...any) // does not return
	Skipf(format string, args ...any)  // does not return
}

// Program returns the path of a program. If it is missing, the test is skipped with the name of the
// Debian package that has it.
func Program(t TB, name, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	// Debian installs servers in folders that are not in every PATH.
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

// File skips the test if a file is missing.
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
