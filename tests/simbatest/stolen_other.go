//go:build !linux

package simbatest

import "time"

// Stolen is not known on this system: nothing counts as stolen.
type Stolen []time.Duration

// StolenSoFar returns nothing on this system.
func StolenSoFar() Stolen { return nil }
