package commands

import (
	"math"
	"time"

	"github.com/simba-resp/simba-resp"
)

// lease is the lease that a command requests for a lock key.
type lease struct {
	ttl    time.Duration
	endsAt int64 // Unix milliseconds; 0 = the command gave a duration
	over   bool  // the requested end has already passed
	kept   bool  // the lock keeps its present lease
}

func forever() lease { return lease{ttl: simba.Endless} }

// unchanged returns the request to keep the present lease.
func unchanged() lease { return lease{ttl: simba.KeepTTL, kept: true} }

func (d lease) of(l simba.Lock) simba.Lock {
	l.TTL, l.EndsAt = d.ttl, d.endsAt
	return l
}

// expiryForm is how an argument gives an expiry.
type expiryForm struct {
	unit     time.Duration // a second or a millisecond
	absolute bool          // the time since 1970, else the time from now
}

var (
	inSeconds = expiryForm{unit: time.Second}
	inMillis  = expiryForm{unit: time.Millisecond}
	atSeconds = expiryForm{unit: time.Second, absolute: true}
	atMillis  = expiryForm{unit: time.Millisecond, absolute: true}
)

// parse reads an expiry of at least lo units. If the expiry has passed, the lease is over.
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
	left := n * factor
	if f.absolute {
		d.endsAt = left
		left = max(left, 0) - t.Now().UnixMilli() // max prevents an underflow
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

// renew gives a lock the lease d. If d is over, renew ends the tenure.
func (t *keyTx) renew(mutex string, l simba.Lock, d lease) {
	if d.over {
		t.Drop(mutex)
		return
	}
	t.Change(mutex, d.of(l), true)
}
