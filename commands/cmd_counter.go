package commands

import (
	"math"

	"github.com/simba-resp/simba-resp"
)

// A lock key is the key of a mutex, and its value is the owner. If the value is an integer, the key
// is a counter, too. A change of the integer keeps the tenure and its lease. INCR of the key
// simba:{m}:fence reserves the next fencing token of mutex m.

var counterCommands = []command{
	{
		name: "decr", arity: 2, flags: write | denyoom | fast, keys: oneKey(valueRead | valueWritten), since: "1.0.0", keyed: decr,
		summary: "Decrement the integer value of a lock key by one; its tenure goes on",
		args:    "key",
	},
	{
		name: "decrby", arity: 3, flags: write | denyoom | fast, keys: oneKey(valueRead | valueWritten), since: "1.0.0", keyed: decrby,
		summary: "Decrement the integer value of a lock key by the given number",
		args:    "key decrement",
	},
	{
		name: "incr", arity: 2, flags: write | denyoom | fast, keys: oneKey(valueRead | valueWritten), since: "1.0.0", keyed: incr,
		summary: "Increment the integer value of a lock key by one; its tenure goes on",
		args:    "key",
	},
	{
		name: "incrby", arity: 3, flags: write | denyoom | fast, keys: oneKey(valueRead | valueWritten), since: "1.0.0", keyed: incrby,
		summary: "Increment the integer value of a lock key by the given amount",
		args:    "key increment",
	},
}

// increase adds delta to a counter. A key that does not exist counts as 0.
func (t *keyTx) increase(args [][]byte, delta int64) error {
	k := t.key(args)
	if k.Part == simba.KeyFence && delta == 1 {
		t.w.Int(int64(t.NextToken(k.Mutex)))
		return nil
	}
	l, err := t.str(k)
	switch {
	case err != nil:
		return err
	case k.Part != simba.KeyLock:
		return viewError(args, k)
	}
	var n int64
	if l.Exists() {
		var ok bool
		if n, ok = parseInt([]byte(l.Owner)); !ok {
			return errNotInteger
		}
	}
	if delta > 0 && n > math.MaxInt64-delta || delta < 0 && n < math.MinInt64-delta {
		return errIncrOverflow
	}
	exists := l.Exists()
	l.Owner = decimal(n + delta)
	if exists {
		t.Change(k.Mutex, l, false)
	} else {
		t.Take(k.Mutex, forever().of(l))
	}
	t.w.Int(n + delta)
	return nil
}

func incr(t *keyTx, args [][]byte) error { return t.increase(args, 1) }

func decr(t *keyTx, args [][]byte) error { return t.increase(args, -1) }

func incrby(t *keyTx, args [][]byte) error {
	by, ok := parseInt(args[2])
	if !ok {
		return errNotInteger
	}
	return t.increase(args, by)
}

func decrby(t *keyTx, args [][]byte) error {
	by, ok := parseInt(args[2])
	switch {
	case !ok:
		return errNotInteger
	case by == math.MinInt64:
		return replyError("ERR decrement would overflow")
	}
	return t.increase(args, -by)
}
