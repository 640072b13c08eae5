// Package metrics tests what the server serves over HTTP: metrics, health and profiles. It also
// tests the rules and the dashboard in deploy that use the metrics.
package metrics

import (
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
