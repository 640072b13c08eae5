package client

import (
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// The server's limits of names and windows.
const (
	maxMutexLen     = 255 // bytes
	maxContenderLen = 128 // bytes

	minTTL        = time.Millisecond
	maxTTL        = 24 * time.Hour
	maxTransition = 24 * time.Hour
)

// checkMutex returns why the server refuses s as the name of a mutex.
func checkMutex(s string) error {
	if err := checkName(s, maxMutexLen); err != nil {
		return fmt.Errorf("invalid mutex: %w", err)
	}
	return nil
}

// checkContender returns why the server refuses s as a contender's id. "@@" separates the fields of
// a notice, so an id must not contain it.
func checkContender(s string) error {
	err := checkName(s, maxContenderLen)
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

// mutexChannel is where the server announces a new tenure of the mutex, and that the mutex is free
// and nobody is next.
func mutexChannel(mutex string) string { return "simba:{" + mutex + "}" }

// contenderChannel is where the server notifies a contender that it is next.
func contenderChannel(mutex, contender string) string { return mutexChannel(mutex) + ":" + contender }

// eventChannel is where the server publishes every event of the mutex as JSON.
func eventChannel(mutex string) string { return "simba-events:{" + mutex + "}" }

// acquiredNotice is the payload on mutexChannel when contender's tenure begins.
func acquiredNotice(contender string) string { return "acquired@@" + contender }

// releasedPrefix begins the payload on contenderChannel, or on mutexChannel if nobody is next, when
// a tenure has ended. The owner's id follows.
const releasedPrefix = "released@@"

// The kinds of events on eventChannel.
const (
	eventAcquired = "acquired" // a new tenure began
	eventReleased = "released" // its owner released the mutex
	eventExpired  = "expired"  // its lease ended without a renewal
	eventBroken   = "broken"   // an administrator ended it
	eventQueued   = "queued"   // a contender joined the queue
	eventLeft     = "left"     // a contender left the queue without the mutex
)
