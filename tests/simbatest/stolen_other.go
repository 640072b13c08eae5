//go:build !linux

package simbatest

import "time"

// Stolen is always empty, since this system does not report stolen time.
type Stolen []time.Duration

// StolenSoFar returns nil on this system.
func StolenSoFar() Stolen { return nil }
