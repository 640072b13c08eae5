// Package outages tests servers that share a store. The tests cut off, pause and kill the store.
package outages

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
