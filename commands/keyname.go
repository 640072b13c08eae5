package commands

import (
	"strconv"

	"github.com/simba-resp/simba-resp"
)

// parseKey reads a key: a mutex, or one of its views.
func parseKey(key []byte) simba.Key { return simba.ParseKey(string(key)) }

// viewError is why a command cannot write to a view of a mutex.
func viewError(args [][]byte, k simba.Key) error {
	switch k.Part {
	case simba.KeyQueue:
		return replyErrorf("ERR '%s' cannot make a lock of '%s': it is the queue of a mutex", nameOf(args), shorten([]byte(k.String())))
	case simba.KeyFence:
		return replyErrorf("ERR '%s' cannot change '%s': it counts the fencing tokens of a mutex, and only INCR does so", nameOf(args), shorten([]byte(k.String())))
	default:
		return replyErrorf("ERR '%s' cannot change '%s': it is the fencing token of the mutex' owner", nameOf(args), shorten([]byte(k.String())))
	}
}

// view returns what a string key shows that is no lock's: a token, with the expiry of the lease. The
// zero Lock is a key that does not exist.
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
