// Package metrics tests what the server serves over HTTP: metrics, health and profiles.
package metrics

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
