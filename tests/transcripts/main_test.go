// Package transcripts runs what the documentation shows, and compares the output.
package transcripts

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) {
	os.Setenv("FAKETTY", "1") // redis-cli then writes as to a terminal
	os.Exit(simbatest.Main(m))
}
