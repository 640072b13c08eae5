// Package simba is the vocabulary of the server: the words that the wire, the
// commands, the engines and the stores share, and nothing that does work.
//
//	socket → resp → commands → simba.Backend → engine → Journal → persist → disk
//
// Every package right of "commands" speaks in these types; imports run only to
// the right and to this package.
//
// A mutex is a name. A contender wants it; the owner has it, by a lease of two
// windows: in [acquired, acquired+ttl) the owner may work and should renew, in
// the transition window that follows nobody else may take the mutex yet. One
// unbroken time of one owner is a tenure, and a fencing token names it: an
// integer larger than that of every earlier tenure.
package simba

import (
	"fmt"
	"math"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of names and numbers, the same for every engine.
const (
	MaxMutexLen     = 255 // bytes of a mutex' name
	MaxContenderLen = 128 // bytes of a contender's id
	MaxReasonLen    = 256 // bytes of the reason of a BREAK

	MinTTL        = time.Millisecond
	MaxTTL        = 24 * time.Hour
	MaxTransition = 24 * time.Hour

	MaxCount = 10000 // largest COUNT of a listing command
)

// Instant is a point on an engine's own clock, in nanoseconds. That clock never
// steps: it counts from the machine's boot, so that a restarted process on the
// same boot can go on with the instants that an earlier one stored. The zero
// Instant is the boot.
type Instant int64

// Add returns the instant d after i.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Seq numbers the changes of a server: every change gets the next one, and none
// is used twice, crashes included. A result that carries a Seq rests on that
// change and may be told to a client only when the change is durable.
// The zero Seq rests on nothing.
type Seq uint64

// Lease is what an owner holds.
type Lease struct {
	Mutex string
	Owner string
	Token uint64 // fencing token of the tenure, never 0

	Acquired   Instant       // start of the current windows: the grant or the last renewal
	AcquiredAt int64         // the same in Unix milliseconds, for people
	TTL        time.Duration // Endless = it does not end by itself
	Transition time.Duration
	StartedAt  int64 // start of the tenure: the grant, in Unix milliseconds

	Session bool    // the lease is bound to a connection, and ends with it
	Fields  []Field // of a lock that is kept as a hash; nil = it is none
}

// End is the instant at which the lease has ended and the mutex is free; the largest
// Instant if it does not end.
func (l Lease) End() Instant {
	if l.TTL == Endless {
		return math.MaxInt64
	}
	return l.Acquired.Add(l.TTL + l.Transition)
}

// A NameError says why a name cannot be used, in words for the client.
type NameError struct {
	Argument string // "mutex" or "contender"
	Problem  string
}

func (e *NameError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Argument, e.Problem) }

// CheckMutex returns a *NameError unless s can name a mutex: 1 to MaxMutexLen
// bytes of printable UTF-8 without braces and white space.
func CheckMutex[S string | []byte](s S) error { return checkName("mutex", s, MaxMutexLen) }

// CheckContender returns a *NameError unless s can be a contender's id: as a
// mutex' name but at most MaxContenderLen bytes and without "@@", which parts the
// fields of a notice.
func CheckContender[S string | []byte](s S) error {
	if err := checkName("contender", s, MaxContenderLen); err != nil {
		return err
	}
	for i := 1; i < len(s); i++ {
		if s[i] == '@' && s[i-1] == '@' {
			return &NameError{"contender", "it must not contain '@@'"}
		}
	}
	return nil
}

func checkName[S string | []byte](argument string, s S, limit int) error {
	switch {
	case len(s) == 0:
		return &NameError{argument, "it is empty"}
	case len(s) > limit:
		return &NameError{argument, fmt.Sprintf("it has %d bytes, at most %d are allowed", len(s), limit)}
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '{' || c == '}':
			return &NameError{argument, "it must not contain '{' or '}'"}
		case c <= ' ' || c == 0x7f:
			return &NameError{argument, "it must not contain white space or control characters"}
		case c >= utf8.RuneSelf:
			return checkUnicode(argument, string(s[i:]))
		}
	}
	return nil
}

// checkUnicode judges the part of a name from its first byte beyond ASCII.
func checkUnicode(argument, s string) error {
	if !utf8.ValidString(s) {
		return &NameError{argument, "it is not valid UTF-8"}
	}
	for _, r := range s {
		switch {
		case r == '{' || r == '}':
			return &NameError{argument, "it must not contain '{' or '}'"}
		case !unicode.IsPrint(r) || unicode.IsSpace(r):
			return &NameError{argument, "it must not contain white space or characters that do not print"}
		}
	}
	return nil
}
