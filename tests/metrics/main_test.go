// Package metrics tests what the server serves over HTTP: metrics, health and profiles. It also
// tests the rules and the dashboard of deploy, which read the metrics.
package metrics

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
