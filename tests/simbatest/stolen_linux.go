package simbatest

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/stat. It is 1/USER_HZ, and USER_HZ is 100 wherever Go runs.
const tick = 10 * time.Millisecond

// Stolen has one time per virtual processor: how long the processor was ready, but the host did not
// run it. This is "steal" of proc_stat(5), in steps of 10 ms. On a physical machine it is 0.
type Stolen []time.Duration

// StolenSoFar returns the time stolen since the machine started, or nil without /proc/stat.
func StolenSoFar() (s Stolen) {
	stat, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(stat)) {
		// cpu0 user nice system idle iowait irq softirq steal …
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		ticks, _ := strconv.ParseInt(f[8], 10, 64)
		s = append(s, time.Duration(ticks)*tick)
	}
	return s
}
