package simba

import "strings"

// KeyPart is the part of a mutex that a Redis key shows.
type KeyPart uint8

// The parts. All but KeyLock are views: their values follow from the mutex, so few commands can
// write them.
const (
	KeyLock  KeyPart = iota // the owner; it expires with the lease
	KeyQueue                // a sorted set of the waiters
	KeyFence                // a token that no tenure of the mutex so far exceeds, see Tx.Fence
	KeyToken                // the token of the tenure; it expires with the lease
)

var keySuffixes = [...]string{KeyLock: "", KeyQueue: ":contender", KeyFence: ":fence", KeyToken: ":token"}

// Key is a Redis key: a part of a mutex.
type Key struct {
	Mutex string
	Part  KeyPart
}

// ParseKey parses a key. A mutex m has two lock keys: m itself and its tagged key simba:{m}. The
// views extend the tagged key, as in Simba's Redis backend: simba:{m}:contender, :fence and :token.
// The last brace of a key ends the name, so no two mutexes share a key. Any other key, also
// simba:{}, is the lock key of the mutex with that name.
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

// KeyOf returns a lock key of a mutex: its name, or its tagged key if the name is a key of another
// mutex.
func KeyOf(mutex string) string {
	if strings.HasPrefix(mutex, "simba:{") && ParseKey(mutex) != (Key{Mutex: mutex}) {
		return MutexChannel(mutex)
	}
	return mutex
}

// TaggedKeyOf returns the tagged key of a mutex. Some names, such as the empty one, have no tagged
// key. For these names TaggedKeyOf returns KeyOf.
func TaggedKeyOf(mutex string) string {
	if mutex == "" || strings.HasPrefix(mutex, "simba:{") {
		return KeyOf(mutex)
	}
	return MutexChannel(mutex)
}

// String returns the tagged key.
func (k Key) String() string { return MutexChannel(k.Mutex) + keySuffixes[k.Part] }
