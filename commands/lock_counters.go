package commands

import (
	"math"

	"github.com/simba-resp/simba-resp"
)

// Counters: a string that is an integer. To count on changes no tenure and no lease, but for the
// counter of a mutex' tokens.

// increase adds to a counter; a key that does not exist counts from 0.
func (t *keyTx) increase(args [][]byte, by int64) error {
	k := parseKey(args[1])
	if k.Part == simba.KeyFence && by == 1 {
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
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return errIncrOverflow
	}
	exists := l.Exists()
	l.Owner = decimal(n + by)
	if exists {
		t.Change(k.Mutex, l, false)
	} else {
		t.Take(k.Mutex, forever().of(l))
	}
	t.w.Int(n + by)
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
