//go:build !linux

package persist

import "errors"

// MachineBoot returns a boot without an ID: only Linux tells one boot from another.
func MachineBoot() Boot { return unknownBoot(errors.ErrUnsupported) }
