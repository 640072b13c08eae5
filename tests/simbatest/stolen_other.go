//go:build !linux

package simbatest

import "time"

// Stolen is not known here: nothing counts as stolen.
type Stolen []time.Duration

// StolenSoFar returns nothing here.
func StolenSoFar() Stolen { return nil }
