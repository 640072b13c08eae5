// Package crash tests what survives crashes of the server or the machine, reboots and restarts.
package crash

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
