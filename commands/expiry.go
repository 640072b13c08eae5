package commands

import (
	"math"
	"time"

	"github.com/simba-resp/simba-resp"
)

// lease is the lease that a command asks for.
type lease struct {
	ttl    time.Duration
	endsAt int64 // Unix milliseconds if the command gave the end, else 0
	over   bool  // the end has passed
	kept   bool  // the lock keeps the lease that it has
}

func forever() lease { return lease{ttl: simba.Endless} }

// unchanged returns a lease that keeps the one of the key.
func unchanged() lease { return lease{ttl: simba.KeepTTL, kept: true} }

// of returns l with that lease.
func (d lease) of(l simba.Lock) simba.Lock {
	l.TTL, l.EndsAt = d.ttl, d.endsAt
	return l
}

// end returns when a lease from now would end, in Unix milliseconds.
func (d lease) end(now time.Time) int64 {
	if d.endsAt != 0 {
		return d.endsAt
	}
	return now.UnixMilli() + d.ttl.Milliseconds()
}

// expiryForm is the form of a time in an argument.
type expiryForm struct {
	unit     time.Duration // a second or a millisecond
	absolute bool          // since 1970, else from now
}

// The forms of a time in an argument.
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
		left = max(left, 0) - now // all times before 1970 are the same
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

// renew gives a lock another lease. It ends the tenure if that lease is over already.
func (t *keyTx) renew(mutex string, l simba.Lock, d lease) {
	if d.over {
		t.Drop(mutex)
		return
	}
	t.Change(mutex, d.of(l), true)
}
