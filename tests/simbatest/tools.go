package simbatest

import (
	"testing"

	"github.com/simba-resp/simba-resp/tests/need"
)

// NeedRedisTools skips the test if redis-cli or redis-benchmark is not installed. With CI=true it
// fails the test.
func NeedRedisTools(t testing.TB) {
	t.Helper()
	for _, name := range []string{"redis-cli", "redis-benchmark"} {
		need.Program(t, name, "redis-tools")
	}
}
