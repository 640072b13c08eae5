// Package names has the server's names and limits that the client and its subpackages use. The
// client imports nothing of the server, so tests of the server's module compare the two. The rules
// for the names of mutexes and contenders are the server's alone: it refuses the others.
package names

import (
	"fmt"
	"time"
)

// The limits of names and windows.
const (
	MaxContenderLen = 128 // bytes

	MinTTL        = time.Millisecond
	MaxTTL        = 24 * time.Hour
	MaxTransition = 24 * time.Hour
)

// CheckMillis returns an error unless d lies between lowest and highest and is a whole number of
// milliseconds. The error begins with name.
func CheckMillis(name string, d, lowest, highest time.Duration) error {
	switch {
	case d < lowest || d > highest:
		return fmt.Errorf("%s is %v, not %v to %v", name, d, lowest, highest)
	case d%time.Millisecond != 0:
		return fmt.Errorf("%s is %v, not a whole number of milliseconds", name, d)
	}
	return nil
}

// MutexChannel returns the channel on which the server announces each new tenure of the mutex. If a
// tenure ends and no waiter is next, the server announces that there, too.
func MutexChannel(mutex string) string { return "simba:{" + mutex + "}" }

// ContenderChannel returns the channel on which the server notifies a contender that it is next.
func ContenderChannel(mutex, contender string) string { return MutexChannel(mutex) + ":" + contender }

// EventChannel returns the channel on which the server publishes every event of the mutex as JSON.
func EventChannel(mutex string) string { return "simba-events:{" + mutex + "}" }

// AcquiredNotice returns the payload on MutexChannel when the tenure of a contender begins.
func AcquiredNotice(contender string) string { return "acquired@@" + contender }

// ReleasedPrefix begins the notice that a tenure has ended. The id of the former owner follows. The
// server sends the notice on ContenderChannel of the next waiter, or else on MutexChannel.
const ReleasedPrefix = "released@@"

// EventAcquired is the kind of an event with which a tenure begins. The events released, expired and
// broken end one.
const EventAcquired = "acquired"
