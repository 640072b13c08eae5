// Package names has the server's names and limits that the client and its subpackages use. The
// client imports nothing of the server, so a test of the server's module compares the two copies.
package names

import (
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of names and windows.
const (
	MaxMutexLen     = 255 // bytes
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

// CheckMutex returns an error if the server refuses s as the name of a mutex.
func CheckMutex(s string) error {
	if err := checkName(s, MaxMutexLen); err != nil {
		return fmt.Errorf("invalid mutex: %w", err)
	}
	return nil
}

// CheckContender returns an error if the server refuses s as a contender's id. An id must not
// contain "@@", which separates the fields of a notice.
func CheckContender(s string) error {
	err := checkName(s, MaxContenderLen)
	for i := 1; i < len(s) && err == nil; i++ {
		if s[i-1:i+1] == "@@" {
			err = errors.New("it must not contain '@@'")
		}
	}
	if err != nil {
		return fmt.Errorf("invalid contender: %w", err)
	}
	return nil
}

// checkName checks that s is 1 to limit bytes of printable UTF-8 without braces and white space.
func checkName(s string, limit int) error {
	switch {
	case s == "":
		return errors.New("it is empty")
	case len(s) > limit:
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(s), limit)
	}
	for i, r := range s {
		switch {
		case r == '{' || r == '}':
			return errors.New("it must not contain '{' or '}'")
		case r <= ' ' || r == 0x7f:
			return errors.New("it must not contain white space or control characters")
		case r >= utf8.RuneSelf && !utf8.ValidString(s[i:]):
			return errors.New("it is not valid UTF-8")
		case !unicode.IsPrint(r) || unicode.IsSpace(r):
			return errors.New("it must not contain white space or characters that do not print")
		}
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

// The kinds of events on EventChannel.
const (
	EventAcquired = "acquired" // a new tenure began
	EventReleased = "released" // the owner released the mutex
	EventExpired  = "expired"  // the lease ended without a renewal
	EventBroken   = "broken"   // an administrator ended the tenure
	EventQueued   = "queued"   // a contender joined the queue
	EventLeft     = "left"     // a contender left the queue without the mutex
)
