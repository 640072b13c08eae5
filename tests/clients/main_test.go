// Package clients tests the server with redis-cli, redis-benchmark, go-redis and redigo, over TCP
// and TLS, as different users.
package clients

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) {
	os.Setenv("FAKETTY", "1") // makes redis-cli write as to a terminal
	os.Exit(simbatest.Main(m))
}
