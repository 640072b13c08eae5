// Package transcripts runs the commands that the documentation shows, and compares the output.
package transcripts

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) {
	os.Setenv("FAKETTY", "1") // makes redis-cli write as to a terminal
	os.Exit(simbatest.Main(m))
}
