// Package simba is the vocabulary of the server: the types that the commands, the engines and the
// stores share.
//
//	socket → resp → commands → simba.Backend → engine → Journal → persist → disk
//
// Packages import only packages to their right, and this one.
//
// A mutex is a named lock. Contenders compete for it, and the one that has it is the owner. The
// owner has a lease of two windows. In the TTL window the owner may work and should renew. In the
// transition window, which follows, it may still renew, and no other contender can acquire the
// mutex yet. A tenure is one ownership, from the grant through all renewals. Each tenure has a
// fencing token: an integer larger than that of every earlier tenure.
//
// Every engine keeps these rules. A mutex has at most one owner. Tokens grow. Waiters get the mutex
// in the order of the queue. A reply is sent only when the change that it shows is durable.
package simba

import (
	"fmt"
	"math"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of names and numbers, for every engine.
const (
	MaxMutexLen     = 255 // bytes of a mutex's name
	MaxContenderLen = 128 // bytes of a contender's id
	MaxReasonLen    = 256 // bytes of the reason of a BREAK

	MinTTL        = time.Millisecond
	MaxTTL        = 24 * time.Hour
	MaxTransition = 24 * time.Hour

	MaxCount = 10000 // largest COUNT of a listing command
)

// Instant is an instant on an engine's clock: nanoseconds since the machine's boot. That clock
// never steps. A process that restarts before the next boot can use the instants that it stored.
type Instant int64

// Add returns the instant d after i.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Seq is the number of a change. It is larger than the numbers of all earlier changes of the
// server, even after a crash. A result with a Seq may be sent to a client only when the change with
// that number is durable. A result with the zero Seq depends on no change.
type Seq uint64

// Lease is the lease of an owner.
type Lease struct {
	Mutex string
	Owner string
	Token uint64 // fencing token of the tenure, never 0

	Acquired   Instant       // start of the current windows: the grant or the last renewal
	AcquiredAt int64         // Acquired in Unix milliseconds, for display
	TTL        time.Duration // Endless = it does not expire
	Transition time.Duration
	StartedAt  int64 // the grant, in Unix milliseconds

	Session bool    // the lease is bound to a connection and ends with the connection
	Fields  []Field // the fields, if the lock key is a hash; nil = it is a string
}

// End returns the instant at which the lease expires, or the largest Instant if it never does.
func (l Lease) End() Instant {
	if l.TTL == Endless {
		return math.MaxInt64
	}
	return l.Acquired.Add(l.TTL + l.Transition)
}

// A NameError is returned when a name is invalid. Its text is for the client.
type NameError struct {
	Argument string // "mutex" or "contender"
	Problem  string
}

func (e *NameError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Argument, e.Problem) }

// CheckMutex returns a *NameError unless s is a valid name of a mutex: 1 to MaxMutexLen bytes of
// printable UTF-8 without braces and white space.
func CheckMutex[S string | []byte](s S) error { return checkName("mutex", s, MaxMutexLen) }

// CheckContender returns a *NameError unless s is a valid contender id. The rules for a mutex's name
// apply, with at most MaxContenderLen bytes. An id must not contain "@@", which separates the
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

// CheckNames returns a *NameError unless both names are valid.
func CheckNames(mutex, contender []byte) error {
	if err := CheckMutex(mutex); err != nil {
		return err
	}
	return CheckContender(contender)
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

// checkUnicode checks the part of a name that begins with its first non-ASCII byte.
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
