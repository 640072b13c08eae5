// Package outages tests servers that share a store, while the store is cut off, paused and killed.
package outages

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
