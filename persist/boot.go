package persist

import "github.com/simba-resp/simba-resp"

// Boot is one run of the machine, from its start to its stop.
type Boot struct {
	// ID is different for every boot. An empty ID is unlike any other, so that
	// every start counts as one after a reboot.
	ID string
	// Now is the time since the boot, times of sleep included. Processes of the
	// same boot must read the same clock.
	Now func() simba.Instant
}
