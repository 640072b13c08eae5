package commands

import (
	"math"
	"time"

	"github.com/simba-resp/simba-resp"
)

// The expiry of a lock key is the end of its owner's lease. A queue never expires.

var expireCommands = []command{
	{
		name: "expire", arity: -3, flags: write | fast, keys: oneKey(valueWritten), since: "1.0.0", keyed: expire(inSeconds),
		summary: "Set a lock key's time to live in seconds: a new lease for its owner",
		args:    "key seconds",
	},
	{
		name: "expireat", arity: -3, flags: write | fast, keys: oneKey(valueWritten), since: "1.2.0", keyed: expire(atSeconds),
		summary: "Set the expiration for a lock key as a UNIX timestamp",
		args:    "key unix-time-seconds",
	},
	{
		name: "expiretime", arity: 2, flags: readonly | fast, keys: oneKey(valueRead), since: "7.0.0", keyed: remaining(atSeconds),
		summary: "Get the expiration Unix timestamp for a lock key",
		args:    "key",
	},
	{
		name: "persist", arity: 2, flags: write | fast, keys: oneKey(valueWritten), since: "2.2.0", keyed: persist,
		summary: "Remove the expiration from a lock key: its lease does not end",
		args:    "key",
	},
	{
		name: "pexpire", arity: -3, flags: write | fast, keys: oneKey(valueWritten), since: "2.6.0", keyed: expire(inMillis),
		summary: "Set a lock key's time to live in milliseconds",
		args:    "key milliseconds",
	},
	{
		name: "pexpireat", arity: -3, flags: write | fast, keys: oneKey(valueWritten), since: "2.6.0", keyed: expire(atMillis),
		summary: "Set the expiration for a lock key as a UNIX timestamp specified in milliseconds",
		args:    "key unix-time-milliseconds",
	},
	{
		name: "pexpiretime", arity: 2, flags: readonly | fast, keys: oneKey(valueRead), since: "7.0.0", keyed: remaining(atMillis),
		summary: "Get the expiration Unix timestamp for a lock key in milliseconds",
		args:    "key",
	},
	{
		name: "pttl", arity: 2, flags: readonly | fast, keys: oneKey(valueRead), since: "2.6.0", keyed: remaining(inMillis),
		summary: "Get the time to live for a lock key in milliseconds",
		args:    "key",
	},
	{
		name: "ttl", arity: 2, flags: readonly | fast, keys: oneKey(valueRead), since: "1.0.0", keyed: remaining(inSeconds),
		summary: "Get the time to live for a lock key in seconds",
		args:    "key",
	},
}

// expire returns EXPIRE, PEXPIRE, EXPIREAT or PEXPIREAT. An expiry in the past deletes the key. A
// future expiry has no effect on the key of a token, which expires with the lease, or of a queue,
// which never expires.
func expire(f expiryForm) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		if len(args) > 3 {
			for _, option := range []string{"NX", "XX", "GT", "LT"} {
				if equalFold(args[3], option) {
					return replyErrorf("ERR '%s' serves no options: this is a lock server", nameOf(args))
				}
			}
			return replyErrorf("ERR Unsupported option %s", shorten(args[3]))
		}
		d, err := f.parse(t, args, args[2], math.MinInt64)
		if err != nil {
			return err
		}
		k := t.key(args)
		l, exists := t.lookup(k)
		switch {
		case !exists, k.Part == simba.KeyQueue && !d.over:
			t.w.Int(0)
			return nil
		case k.Part == simba.KeyFence:
			return viewError(args, k)
		case d.over:
			t.drop(k)
		case k.Part == simba.KeyLock:
			t.renew(k.Mutex, l, d)
		}
		t.w.Int(1)
		return nil
	}
}

func persist(t *keyTx, args [][]byte) error {
	k := t.key(args)
	l, exists := t.lookup(k)
	ends := exists && l.EndsAt != 0
	switch {
	case ends && k.Part != simba.KeyLock:
		return viewError(args, k)
	case ends:
		t.renew(k.Mutex, l, forever())
	}
	writeFlag(t.w, ends)
	return nil
}

func remaining(f expiryForm) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		switch l, exists := t.lookup(t.key(args)); {
		case !exists:
			t.w.Int(-2)
		case l.EndsAt == 0:
			t.w.Int(-1)
		case f.absolute:
			t.w.Int(f.round(l.EndsAt))
		default:
			t.w.Int(f.round(l.TTL.Milliseconds()))
		}
		return nil
	}
}

// round converts milliseconds into units of the form. It rounds half up, as Redis does.
func (f expiryForm) round(ms int64) int64 {
	unit := int64(f.unit / time.Millisecond)
	return (ms + unit/2) / unit
}
