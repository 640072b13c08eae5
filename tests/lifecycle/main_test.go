// Package lifecycle tests the start and the stop of the server: what the server refuses, how it
// ends, and what it logs.
package lifecycle

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
