// Package outages tests servers that share a store. The tests cut the servers off from the store,
// and pause and stop it.
package outages

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
