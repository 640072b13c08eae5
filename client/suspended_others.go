//go:build !linux

package client

import "time"

// suspended returns how long the machine was suspended. It is not known on this system.
func suspended() time.Duration { return 0 }
