package simbatest

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc/stat: USER_HZ is 100 on every architecture that Go knows.
const tick = 10 * time.Millisecond

// Stolen is the time for which the host did not run each virtual processor though it was ready
// ("steal" in proc_stat(5), to 10 ms). A physical machine has none.
type Stolen []time.Duration

// StolenSoFar reads the time stolen since the machine's start.
func StolenSoFar() (s Stolen) {
	stat, _ := os.ReadFile("/proc/stat") // without the file nothing counts as stolen
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
