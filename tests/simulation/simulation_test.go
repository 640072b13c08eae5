package simulation

import (
	"flag"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seeds   = flag.Int("seeds", 200, "how many seeds TestSimulation runs")
	oneSeed = flag.Uint64("seed", 0, "the only seed that TestSimulation runs, with its log; 0 = many")
)

// TestSimulation runs seeds that nobody has run before.
func TestSimulation(t *testing.T) {
	if *oneSeed != 0 {
		r := simulate(t, *oneSeed)
		t.Logf("seed %d (%s)\n%s", r.seed, r.config, strings.Join(r.log, "\n"))
		judgeRun(t, r)
		return
	}
	base := uint64(time.Now().UnixMilli()) * 1_000_000
	t.Logf("seeds from %d on", base+1)
	var next atomic.Uint64
	for range *seeds {
		if judgeRun(t, simulate(t, base+next.Add(1))); t.Failed() {
			return
		}
	}
}

// judgeRun fails the test if a rule was broken.
func judgeRun(t *testing.T, r *report) {
	t.Helper()
	if len(r.violations) > 0 {
		t.Errorf("%vthe last events:\n%s\nto see all of it: make simulate SEED=%d", r, r.tail(25), r.seed)
	}
}

// TestTheSeedReproducesTheRun runs seeds twice.
func TestTheSeedReproducesTheRun(t *testing.T) {
	for seed := range uint64(20) {
		a, b := simulate(t, seed+1), simulate(t, seed+1)
		if !slices.Equal(a.log, b.log) {
			for i := range min(len(a.log), len(b.log)) {
				if a.log[i] != b.log[i] {
					t.Errorf("seed %d (%s) goes on in two ways:\n%s\n\n%s", seed+1, a.config,
						strings.Join(a.log[max(0, i-5):i+1], "\n"), strings.Join(b.log[max(0, i-5):i+1], "\n"))
					break
				}
			}
			if !t.Failed() {
				t.Errorf("seed %d: %d and %d events", seed+1, len(a.log), len(b.log))
			}
		}
	}
}
