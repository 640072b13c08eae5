package simbatest

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc/stat. USER_HZ is 100 on every architecture that Go
// supports.
const tick = 10 * time.Millisecond

// Stolen has one time for each virtual processor: how long the host did not run it though it was
// ready. It is the value "steal" of proc_stat(5), in steps of 10 ms. On a physical machine it is 0.
type Stolen []time.Duration

// StolenSoFar returns the time stolen since the machine's start.
func StolenSoFar() (s Stolen) {
	stat, _ := os.ReadFile("/proc/stat") // without the file, StolenSoFar returns nil
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
