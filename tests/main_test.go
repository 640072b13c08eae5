// Package tests drives the real binary from outside, as users do: with redis-cli,
// with Go's Redis clients, with signals, and with the commands of the README.
//
// Nothing here sleeps and hopes. A test waits for what the server says: the line
// that it is ready, a reply, its exit.
package tests

import (
	"os"
	"os/exec"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

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
