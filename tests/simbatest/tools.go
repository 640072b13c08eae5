package simbatest

import (
	"os"
	"os/exec"
	"testing"
)

// NeedRedisTools skips the test if redis-cli or redis-benchmark is not installed. With CI=true it
// fails the test instead.
func NeedRedisTools(t testing.TB) {
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
