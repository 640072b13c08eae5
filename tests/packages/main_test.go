//go:build linux

// Package packages tests a release: archives, Debian and RPM packages, and the file system of the
// container image. make package builds these and runs all tests. make test builds and tests only
// one binary.
package packages

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var dist = flag.String("dist", "", "the folder that make release-snapshot filled")

func TestMain(m *testing.M) {
	flag.Parse()
	if *dist == "" {
		os.Exit(m.Run())
	}
	if os.Getuid() != 0 {
		fail(fmt.Errorf("the installation of packages needs root"))
	}
	if os.Getenv(inside) == "" {
		code, err := runInPrivateMachine()
		if err != nil {
			fail(err)
		}
		os.Exit(code)
	}
	if err := enterPrivateMachine(); err != nil {
		fail(err)
	}
	os.Exit(m.Run())
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "tests/packages:", err)
	os.Exit(1)
}

// artifact returns the path of the only file in the folder -dist that matches the pattern. Without
// -dist it skips the test.
func artifact(t *testing.T, pattern string) string {
	t.Helper()
	if *dist == "" {
		t.Skip("packages are not tested without -dist: see make package")
	}
	found, err := filepath.Glob(filepath.Join(*dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s matches the files %q, %v, want one", pattern, found, err)
	}
	return found[0]
}
