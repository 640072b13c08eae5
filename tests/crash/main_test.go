// Package crash tests what survives a crash of the server or of the machine, a reboot and a
// restart.
package crash

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
