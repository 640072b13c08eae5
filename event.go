package simba

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// EventKind is the kind of an event of a mutex or its queue.
type EventKind uint8

// The kinds of events. Acquired, Released, Expired and Broken change the owner. Queued and Left
// change only the queue, so a crash may lose the last events of these kinds.
const (
	EventAcquired EventKind = iota + 1 // a new tenure began
	EventReleased                      // the owner released the mutex
	EventExpired                       // the lease ended without a renewal
	EventBroken                        // an administrator ended the tenure
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

// Event is one event in a server's history.
type Event struct {
	Seq    Seq
	At     int64 // Unix milliseconds
	Kind   EventKind
	Mutex  string
	Owner  string // for Queued and Left the contender
	Token  uint64 // of the tenure; for Queued and Left 0
	Reason string // may be empty
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

// appendJSONString appends s as a JSON string (RFC 8259, section 7). It replaces encoding/json,
// which is too slow for this hot path.
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
			b = utf8.AppendRune(b, r) // an invalid byte becomes U+FFFD
			i += n
			continue
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}

// The channels of notices and their payloads. Contenders of Simba, a lock library for the JVM,
// parse the notices. So the names of the channels and the format of the payloads must not change
// (Simba, "Pub/Sub Channels", "OwnerEvent Protocol"). In a shared Redis the mutex's channel is also
// the name of its key.

// MutexChannel returns the channel of a mutex. Its notices announce each new tenure, and that the
// mutex is free and nobody waits.
func MutexChannel(mutex string) string { return "simba:{" + mutex + "}" }

// ContenderChannel returns a contender's own channel. Its notices announce that the mutex is
// reserved for the contender.
func ContenderChannel(mutex, contender string) string {
	return "simba:{" + mutex + "}:" + contender
}

// PlainContenderChannel returns the contender channel without braces. Contenders of Simba before
// 3.0.2 subscribe to it, although the scripts of these versions publish with braces. So these
// contenders are deaf.
func PlainContenderChannel(mutex, contender string) string {
	return "simba:" + mutex + ":" + contender
}

// EventChannel returns the channel with every event of the mutex as JSON.
func EventChannel(mutex string) string { return "simba-events:{" + mutex + "}" }

// AcquiredNotice returns the payload on MutexChannel for the beginning of a tenure.
func AcquiredNotice(contender string) string { return "acquired@@" + contender }

// ReleasedNotice returns the payload for the end of a tenure of oldOwner. It is published on
// ContenderChannel if the mutex is reserved for a contender, and on MutexChannel if nobody waits.
func ReleasedNotice(oldOwner string) string { return "released@@" + oldOwner }

// OfferNotice is ReleasedNotice for the channel of a contender. If the old owner is not known, it
// names the contender, since Simba cannot parse a notice without an id.
func OfferNotice(oldOwner, contender string) string {
	return ReleasedNotice(cmp.Or(oldOwner, contender))
}

// ParseContenderChannel is the inverse of ContenderChannel. ok is false for any other channel, and
// if the mutex's name or the contender id is invalid.
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

// CutContenderChannel is ParseContenderChannel without checks of the names, because Redis commands
// can make a mutex with any name. A contender id has no braces, so the last brace ends the mutex's
// name.
func CutContenderChannel(channel string) (mutex, contender string, ok bool) {
	rest, ok := strings.CutPrefix(channel, "simba:{")
	i := strings.LastIndex(rest, "}:")
	if !ok || i < 0 {
		return "", "", false
	}
	return rest[:i], rest[i+len("}:"):], true
}

// CutMutexChannel is ParseMutexChannel without a check of the name.
func CutMutexChannel(channel string) (mutex string, ok bool) { return cutTagged("simba:{", channel) }

// CutEventChannel is ParseEventChannel without a check of the name.
func CutEventChannel(channel string) (mutex string, ok bool) {
	return cutTagged("simba-events:{", channel)
}

// ParseMutexChannel is the inverse of MutexChannel. ok is false for any other channel, and if the
// mutex's name is invalid.
func ParseMutexChannel(channel string) (mutex string, ok bool) {
	return parseTagged("simba:{", channel)
}

// ParseEventChannel is the inverse of EventChannel. ok is false for any other channel, and if the
// mutex's name is invalid.
func ParseEventChannel(channel string) (mutex string, ok bool) {
	return parseTagged("simba-events:{", channel)
}

// ParseChannel returns the mutex of any channel of a mutex, and the contender if the channel is that
// of a contender. ok is false for other channels, and if a name is invalid.
func ParseChannel(channel string) (mutex, contender string, ok bool) {
	if mutex, contender, ok = ParseContenderChannel(channel); ok {
		return mutex, contender, true
	}
	if mutex, ok = ParseMutexChannel(channel); !ok {
		mutex, ok = ParseEventChannel(channel)
	}
	return mutex, "", ok
}

// MayMatchChannels reports whether a glob can match channels of mutexes or their event channels.
func MayMatchChannels(glob string) (mutexes, events bool) {
	literal := glob
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		literal = glob[:i]
	}
	may := func(prefix string) bool {
		return strings.HasPrefix(prefix, literal) || strings.HasPrefix(literal, prefix)
	}
	return may("simba:{"), may("simba-events:{")
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
