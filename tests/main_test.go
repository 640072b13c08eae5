// Package tests drives the real binary from outside, as users do: with redis-cli,
// with Go's Redis clients, with signals, and with the commands of the README.
//
// Nothing here sleeps and hopes. A test waits for what the server says: the line
// that it is ready, a reply, its exit.
package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the path of the server that is under test.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "simba-resp-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "simba-resp")
	if out, err := exec.Command("go", "build", raceFlag, "-o", binary, "../cmd/simba-resp").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the server: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// needRedisTools skips the test where redis-cli or redis-benchmark is not installed.
// Where CI runs they have to be.
func needRedisTools(t *testing.T) {
	t.Helper()
	for _, name := range []string{"redis-cli", "redis-benchmark"} {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed (apt-get install redis-tools)", name)
	}
}
