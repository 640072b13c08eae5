package client

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

const (
	// marginShare and marginMax are how much earlier than its end a lease is given up: clocks
	// do not run alike, and timers are late.
	marginShare = 100
	marginMax   = 250 * time.Millisecond
)

// margin is how much earlier a lease of that length is given up.
func margin(lease time.Duration) time.Duration { return min(lease/marginShare, marginMax) }

// instant is a point in time that a sleeping machine does not stop.
type instant struct {
	at    time.Time
	slept time.Duration // of the machine, until then
}

func now() instant { return instant{time.Now(), suspended()} }

func (i instant) since(earlier instant) time.Duration {
	return i.at.Sub(earlier.at) + i.slept - earlier.slept
}

// span is the time from a request that got or renewed a lease until the lease is given up.
type span struct {
	from   instant
	length time.Duration
}

func (s *span) left() time.Duration { return s.length - now().since(s.from) }

// ownership is one tenure of ours and its context, which ends no later than the tenure:
// Err reads the clock, so that a process that was stopped in the meantime knows at once.
type ownership struct {
	context.Context
	cancel context.CancelCauseFunc
	token  uint64
	vigil  *vigil
	span   atomic.Pointer[span]
	timer  *time.Timer // ends it when the lease is over, whatever else the process is busy with
}

// newOwnership begins with the answer to a request that was sent at from. It has the values of
// base, which does not end.
func newOwnership(base context.Context, v *vigil, token uint64, from instant, lease time.Duration) *ownership {
	ctx, cancel := context.WithCancelCause(base)
	o := &ownership{Context: ctx, cancel: cancel, token: token, vigil: v}
	o.renew(from, lease)
	o.timer = time.AfterFunc(math.MaxInt64, o.expire)
	o.timer.Reset(max(0, o.left()))
	v.add(o)
	return o
}

// expire ends it unless it was renewed.
func (o *ownership) expire() {
	if left := o.left(); left > 0 {
		o.timer.Reset(left)
		return
	}
	o.end(ErrLost)
}

// end ends it; the first cause holds.
func (o *ownership) end(cause error) {
	o.cancel(cause)
	o.timer.Stop()
	o.vigil.remove(o)
}

// renew begins the windows anew.
func (o *ownership) renew(from instant, lease time.Duration) {
	o.span.Store(&span{from, lease - margin(lease)})
}

// left is for how long the mutex is still owned; not above 0 if it is not.
func (o *ownership) left() time.Duration {
	if o.Context.Err() != nil {
		return 0
	}
	return o.span.Load().left()
}

// owner is the ownership as others see it.
func (o *ownership) owner(t terms) Owner {
	from := o.span.Load().from.at
	return Owner{ID: t.id, Token: o.token, TTLAt: from.Add(t.ttl), TransitionAt: from.Add(t.lease())}
}

// Err implements context.Context.
func (o *ownership) Err() error {
	if o.left() <= 0 {
		o.end(ErrLost)
	}
	return o.Context.Err()
}

// Value implements context.Context.
func (o *ownership) Value(key any) any {
	if key == (tokenKey{}) {
		return o.token
	}
	return o.Context.Value(key)
}

type tokenKey struct{}

// Token returns the fencing token of the tenure that an ownership context, or one made from
// it, belongs to; 0 for any other context.
func Token(ctx context.Context) uint64 {
	token, _ := ctx.Value(tokenKey{}).(uint64)
	return token
}
