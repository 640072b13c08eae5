package commands

import (
	"math"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Expiry: when a lock key expires, the lease of its owner ends. A queue never expires.

// lease is how long a command wants a lock to last.
type lease struct {
	ttl    time.Duration
	endsAt int64 // Unix milliseconds, if the command named the end; else 0
	over   bool  // the end has passed
	kept   bool  // it is the lease that the lock has
}

func forever() lease { return lease{ttl: simba.Endless} }

// unchanged is the lease that the key has.
func unchanged() lease { return lease{ttl: simba.KeepTTL, kept: true} }

// of returns l with that lease.
func (d lease) of(l simba.Lock) simba.Lock {
	l.TTL, l.EndsAt = d.ttl, d.endsAt
	return l
}

// end returns when a lease that begins now would end, in Unix milliseconds.
func (d lease) end(now time.Time) int64 {
	if d.endsAt != 0 {
		return d.endsAt
	}
	return now.UnixMilli() + d.ttl.Milliseconds()
}

// expiryForm is how a command or an option of it gives an expiry.
type expiryForm struct {
	unit     time.Duration // a second or a millisecond
	absolute bool          // since 1970, not from now
}

// The ways to write a time in an argument.
var (
	inSeconds = expiryForm{unit: time.Second}
	inMillis  = expiryForm{unit: time.Millisecond}
	atSeconds = expiryForm{unit: time.Second, absolute: true}
	atMillis  = expiryForm{unit: time.Millisecond, absolute: true}
)

// parse reads an expiry of at least lo units.
func (f expiryForm) parse(t *keyTx, args [][]byte, value []byte, lo int64) (lease, error) {
	n, ok := parseInt(value)
	if !ok {
		return lease{}, errNotInteger
	}
	invalid := func() error { return replyErrorf("ERR invalid expire time in '%s' command", nameOf(args)) }
	factor := int64(f.unit / time.Millisecond)
	if n < lo || n > math.MaxInt64/factor || n < math.MinInt64/factor {
		return lease{}, invalid()
	}
	d := lease{}
	now, left := t.Now().UnixMilli(), n*factor
	if f.absolute {
		d.endsAt = left
		left = max(left, 0) - now // of the past any point will do
	}
	if left <= 0 {
		return lease{over: true}, nil
	}
	if left > simba.MaxLockTTL.Milliseconds() {
		return lease{}, invalid()
	}
	d.ttl = time.Duration(left) * time.Millisecond
	return d, nil
}

// renew gives a lock another lease; it is over at once if that is.
func (t *keyTx) renew(mutex string, l simba.Lock, d lease) {
	if d.over {
		t.Drop(mutex)
		return
	}
	t.Change(mutex, d.of(l), true)
}

// expireIf are the conditions of EXPIRE and its kin.
type expireIf struct{ nx, xx, gt, lt bool }

func parseExpireIf(options [][]byte) (c expireIf, err error) {
	for _, o := range options {
		switch {
		case equalFold(o, "NX"):
			c.nx = true
		case equalFold(o, "XX"):
			c.xx = true
		case equalFold(o, "GT"):
			c.gt = true
		case equalFold(o, "LT"):
			c.lt = true
		default:
			return c, replyErrorf("ERR Unsupported option %s", shorten(o))
		}
	}
	switch {
	case c.nx && (c.xx || c.gt || c.lt):
		return c, replyError("ERR NX and XX, GT or LT options at the same time are not compatible")
	case c.gt && c.lt:
		return c, replyError("ERR GT and LT options at the same time are not compatible")
	}
	return c, nil
}

// allows reports whether a key that expires at current, 0 = never, may from now on expire at
// next.
func (c expireIf) allows(current, next int64) bool {
	switch {
	case c.nx && current != 0, c.xx && current == 0:
		return false
	case c.gt:
		return current != 0 && next > current
	case c.lt:
		return current == 0 || next < current
	}
	return true
}

// expire is EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT. The token of an owner expires with its lease,
// whatever they say, and a queue does not.
func expire(f expiryForm) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		condition, err := parseExpireIf(args[3:])
		if err != nil {
			return err
		}
		d, err := f.parse(t, args, args[2], math.MinInt64)
		if err != nil {
			return err
		}
		k := parseKey(args[1])
		l, exists := t.lookup(k)
		switch {
		case !exists, !condition.allows(l.EndsAt, d.end(t.Now())):
			t.w.Int(0)
			return nil
		case k.Part == simba.KeyFence:
			return viewError(args, k)
		case d.over:
			t.drop(k)
		case k.Part == simba.KeyQueue:
			t.w.Int(0)
			return nil
		case k.Part == simba.KeyToken:
		default:
			t.renew(k.Mutex, l, d)
		}
		t.w.Int(1)
		return nil
	}
}

func persist(t *keyTx, args [][]byte) error {
	k := parseKey(args[1])
	l, exists := t.lookup(k)
	ends := exists && l.EndsAt != 0
	switch {
	case ends && k.Part != simba.KeyLock:
		return viewError(args, k)
	case ends:
		t.renew(k.Mutex, l, forever())
	}
	t.writeFlag(ends)
	return nil
}

// remaining is TTL, PTTL, EXPIRETIME and PEXPIRETIME.
func remaining(f expiryForm) keyedCommand {
	return func(t *keyTx, args [][]byte) error {
		switch l, exists := t.lookup(parseKey(args[1])); {
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

// round turns milliseconds into units as Redis does, the half up.
func (f expiryForm) round(ms int64) int64 {
	unit := int64(f.unit / time.Millisecond)
	return (ms + unit/2) / unit
}
