package simba

import "strings"

// KeyPart is what a Redis key shows of a mutex.
type KeyPart uint8

// The parts. All but KeyLock are views: what they show follows from the mutex, so hardly
// anything can be written to them.
const (
	KeyLock  KeyPart = iota // the owner; it expires with the lease
	KeyQueue                // a sorted set of those who wait
	KeyFence                // the counter of the mutex' tokens
	KeyToken                // the token of the present tenure; it expires with the lease
)

var keySuffixes = [...]string{KeyLock: "", KeyQueue: ":contender", KeyFence: ":fence", KeyToken: ":token"}

// Key is a part of a mutex that Redis' commands can name.
type Key struct {
	Mutex string
	Part  KeyPart
}

// ParseKey reads a key. The mutex m has two spellings, m and simba:{m}, whatever m is; the
// views follow the second one, as in Simba's Redis backend: simba:{m}:contender, :fence and
// :token. The last brace of a key ends the name, so no two mutexes have a key in common.
// Everything else, simba:{} too, is a lock key of that very name.
func ParseKey(key string) Key {
	rest, ok := strings.CutPrefix(key, "simba:{")
	if end := strings.LastIndexByte(rest, '}'); ok && end > 0 {
		for part, suffix := range keySuffixes {
			if rest[end+1:] == suffix {
				return Key{rest[:end], KeyPart(part)}
			}
		}
	}
	return Key{Mutex: key}
}

// KeyOf returns the key of a mutex' lock: its name, unless ParseKey takes that for another mutex'.
func KeyOf(mutex string) string {
	if strings.HasPrefix(mutex, "simba:{") && ParseKey(mutex) != (Key{Mutex: mutex}) {
		return MutexChannel(mutex)
	}
	return mutex
}

// TaggedKeyOf returns the key of a mutex' lock in its second spelling, if it has two.
func TaggedKeyOf(mutex string) string {
	if mutex == "" || strings.HasPrefix(mutex, "simba:{") {
		return KeyOf(mutex)
	}
	return MutexChannel(mutex)
}

// String returns the key in its second spelling.
func (k Key) String() string { return MutexChannel(k.Mutex) + keySuffixes[k.Part] }
