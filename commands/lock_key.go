package commands

import (
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp"
)

// parseKey reads a key. A mutex has a lock key and the keys of three views: its queue, its present
// token, and the counter of its tokens.
func parseKey(key []byte) simba.Key { return simba.ParseKey(string(key)) }

// viewError returns why a command cannot write to a view of a mutex.
func viewError(args [][]byte, k simba.Key) error {
	switch k.Part {
	case simba.KeyQueue:
		return replyErrorf("ERR '%s' cannot make a lock of '%s': it is the queue of a mutex", nameOf(args), shorten([]byte(k.String())))
	case simba.KeyFence:
		return replyErrorf("ERR '%s' cannot change '%s': it counts the fencing tokens of a mutex, and only INCR does so", nameOf(args), shorten([]byte(k.String())))
	default:
		return replyErrorf("ERR '%s' cannot change '%s': it is the fencing token of the mutex's owner", nameOf(args), shorten([]byte(k.String())))
	}
}

// view returns the token or the counter of tokens as a lock whose owner is the number. A token has
// the expiry of the lease. If the key does not exist, view returns the zero Lock.
func (t *keyTx) view(k simba.Key) simba.Lock {
	n, l := uint64(0), simba.Lock{TTL: simba.Endless}
	switch k.Part {
	case simba.KeyFence:
		n = t.Fence(k.Mutex)
	case simba.KeyToken:
		if n = t.Token(k.Mutex); n != 0 {
			lease := t.Lock(k.Mutex)
			l.TTL, l.EndsAt = lease.TTL, lease.EndsAt
		}
	}
	if n == 0 {
		return simba.Lock{}
	}
	l.Token, l.Owner = n, strconv.FormatUint(n, 10)
	return l
}

const errWrongType replyError = "WRONGTYPE Operation against a key holding the wrong kind of value"

// lookup returns the lock behind a key and whether the key exists. For a queue the lock is zero.
// For a token or the counter of tokens it is the result of view.
func (t *keyTx) lookup(k simba.Key) (l simba.Lock, exists bool) {
	switch k.Part {
	case simba.KeyQueue:
		return l, len(t.Queue(k.Mutex)) > 0
	case simba.KeyLock:
		l = t.Lock(k.Mutex)
	default:
		l = t.view(k)
	}
	return l, l.Exists()
}

// str returns the lock behind a string key, the zero Lock if the key does not exist.
func (t *keyTx) str(k simba.Key) (simba.Lock, error) {
	l, exists := t.lookup(k)
	if exists && !isString(k, l) {
		return simba.Lock{}, errWrongType
	}
	return l, nil
}

// isString reports whether an existing key is a string. l is the lock behind the key.
func isString(k simba.Key, l simba.Lock) bool { return k.Part != simba.KeyQueue && l.Fields == nil }

// drop deletes a key and reports whether it existed. It keeps the counter of tokens. It also keeps
// a queue, because contenders of Simba 3.2 and 3.3 delete the queue's key at each release, but do
// not use the queue. A transaction that deletes the key of a token must also end the tenure:
// keyUpdate.run checks this.
func (t *keyTx) drop(k simba.Key) bool {
	_, exists := t.lookup(k)
	switch {
	case !exists:
	case k.Part == simba.KeyLock:
		t.Drop(k.Mutex)
	case k.Part == simba.KeyToken:
		t.DropToken(k.Mutex)
	}
	return exists
}

func nameOf(args [][]byte) string { return strings.ToLower(string(args[0])) }
