//go:build !linux

package persist

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// MachineBoot returns a boot of its own for every call: without Linux' boot id,
// every start has to count as one after a reboot.
func MachineBoot() (Boot, error) {
	start := time.Now()
	return Boot{Now: func() simba.Instant { return simba.Instant(time.Since(start)) }}, nil
}
