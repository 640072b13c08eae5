// Package handoffs tests handoffs of mutexes among many waiters, some of which are dead.
package handoffs

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
