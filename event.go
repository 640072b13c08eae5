package simba

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// EventKind is what happened to a mutex or to its queue.
type EventKind uint8

// The kinds of events. Acquired, Released, Expired and Broken change the owner;
// Queued and Left change only who waits, so a crash may forget the last of them.
const (
	EventAcquired EventKind = iota + 1 // a new tenure began
	EventReleased                      // its owner gave it up
	EventExpired                       // its lease ended without a renewal
	EventBroken                        // an administrator ended it
	EventQueued                        // a contender joined the queue
	EventLeft                          // a contender left the queue without the mutex
)

var eventNames = [...]string{"", "acquired", "released", "expired", "broken", "queued", "left"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}

// Event is one line of a server's history.
type Event struct {
	Seq    Seq
	At     int64 // Unix milliseconds
	Kind   EventKind
	Mutex  string
	Owner  string // whom it happened to: the owner, or the contender of Queued and Left
	Token  uint64 // the tenure's, 0 for Queued and Left
	Reason string // why, in words; may be empty
}

// AppendJSON appends the event as one JSON object, the payload of EventChannel.
func (e Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, uint64(e.Seq), 10)
	b = append(b, `,"at":`...)
	b = strconv.AppendInt(b, e.At, 10)
	b = append(b, `,"event":`...)
	b = appendJSONString(b, e.Kind.String())
	b = append(b, `,"mutex":`...)
	b = appendJSONString(b, e.Mutex)
	b = append(b, `,"owner":`...)
	b = appendJSONString(b, e.Owner)
	b = append(b, `,"token":`...)
	b = strconv.AppendUint(b, e.Token, 10)
	b = append(b, `,"reason":`...)
	b = appendJSONString(b, e.Reason)
	return append(b, '}')
}

// appendJSONString quotes s by RFC 8259, section 7. Events are written on the hot
// path, where encoding/json's reflection and escaping of HTML have no place.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r) // a byte that is no UTF-8 becomes U+FFFD
			i += n
			continue
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}

// The channels of notices and their payloads. Contenders of Simba on the JVM
// parse them, so they are fixed (Simba, "Pub/Sub Channels", "OwnerEvent
// Protocol"). The mutex' key in a shared Redis is its channel's name.

// MutexChannel is where a new tenure of the mutex is announced, and that it is free and
// nobody is next.
func MutexChannel(mutex string) string { return "simba:{" + mutex + "}" }

// ContenderChannel is where a contender is told that it is its turn.
func ContenderChannel(mutex, contender string) string {
	return "simba:{" + mutex + "}:" + contender
}

// PlainContenderChannel is what contenders of Simba before 3.0.2 subscribe to as their
// own channel. They leave the braces out, and their scripts do not.
func PlainContenderChannel(mutex, contender string) string {
	return "simba:" + mutex + ":" + contender
}

// EventChannel is where every event of the mutex is published as JSON.
func EventChannel(mutex string) string { return "simba-events:{" + mutex + "}" }

// AcquiredNotice is the payload on MutexChannel when contender's tenure starts.
func AcquiredNotice(contender string) string { return "acquired@@" + contender }

// ReleasedNotice is the payload on ContenderChannel when oldOwner's tenure ended and it is
// that contender's turn, and on MutexChannel when it is nobody's.
func ReleasedNotice(oldOwner string) string { return "released@@" + oldOwner }

// ParseContenderChannel is the inverse of ContenderChannel; ok is false for any
// other channel, also if its parts cannot be names.
func ParseContenderChannel(channel string) (mutex, contender string, ok bool) {
	rest, ok := strings.CutPrefix(channel, "simba:{")
	if !ok {
		return "", "", false
	}
	mutex, contender, ok = strings.Cut(rest, "}:")
	if !ok || CheckMutex(mutex) != nil || CheckContender(contender) != nil {
		return "", "", false
	}
	return mutex, contender, true
}

// CutContenderChannel is ParseContenderChannel for any mutex, also one that only a key can
// name. The contender's id has no braces.
func CutContenderChannel(channel string) (mutex, contender string, ok bool) {
	rest, ok := strings.CutPrefix(channel, "simba:{")
	i := strings.LastIndex(rest, "}:")
	if !ok || i < 0 {
		return "", "", false
	}
	return rest[:i], rest[i+len("}:"):], true
}

// CutMutexChannel is ParseMutexChannel for any mutex.
func CutMutexChannel(channel string) (mutex string, ok bool) { return cutTagged("simba:{", channel) }

// CutEventChannel is ParseEventChannel for any mutex.
func CutEventChannel(channel string) (mutex string, ok bool) {
	return cutTagged("simba-events:{", channel)
}

// ParseMutexChannel is the inverse of MutexChannel; ok is false for any other
// channel, also if the name cannot be a mutex'.
func ParseMutexChannel(channel string) (mutex string, ok bool) {
	return parseTagged("simba:{", channel)
}

// ParseEventChannel is the inverse of EventChannel, likewise.
func ParseEventChannel(channel string) (mutex string, ok bool) {
	return parseTagged("simba-events:{", channel)
}

func parseTagged(prefix, channel string) (mutex string, ok bool) {
	mutex, ok = cutTagged(prefix, channel)
	if !ok || CheckMutex(mutex) != nil {
		return "", false
	}
	return mutex, true
}

func cutTagged(prefix, channel string) (mutex string, ok bool) {
	mutex, ok = strings.CutPrefix(channel, prefix)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(mutex, "}")
}
