// Package handoffs has mutexes go from hand to hand among many who want them, of whom some are dead.
package handoffs

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
