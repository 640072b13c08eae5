package persist

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// Boot is one run of the machine, from its start to its stop, as seen from one time namespace.
type Boot struct {
	// ID names the boot and its clock: two processes with the same ID read the same clock. An empty
	// ID equals no ID, so each start of the server counts as a start after a reboot.
	ID string
	// Now is the time since the boot, including the time that the machine slept.
	Now func() simba.Instant
	// Unknown is the reason why ID is empty. It may be nil.
	Unknown error
}

// unknownBoot returns a boot without an ID, whose clock begins now.
func unknownBoot(why error) Boot {
	start := time.Now()
	return Boot{Now: func() simba.Instant { return simba.Instant(time.Since(start)) }, Unknown: why}
}
