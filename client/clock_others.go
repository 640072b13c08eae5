//go:build !linux

package client

import "time"

// suspended is how long the machine has slept; not known here.
func suspended() time.Duration { return 0 }
