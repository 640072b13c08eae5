// Package handoffs tests handoffs of mutexes among many waiters, of which some are dead.
package handoffs

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
