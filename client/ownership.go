package client

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/suspend"
)

// An owner gives up a lease a little before its end, because clocks run at slightly different
// speeds and timers fire late. This margin is the lease divided by marginShare, at most marginMax.
const (
	marginShare = 100
	marginMax   = 250 * time.Millisecond
)

func margin(lease time.Duration) time.Duration { return min(lease/marginShare, marginMax) }

// instant is a point in time on a clock that runs while the machine is suspended.
type instant struct {
	at        time.Time
	suspended time.Duration // how long the machine was suspended from its boot until at
}

func now() instant { return instant{time.Now(), suspend.Time()} }

func (i instant) since(earlier instant) time.Duration {
	return i.at.Sub(earlier.at) + i.suspended - earlier.suspended
}

// span is a lease and its begin: the moment just before the request that acquired or renewed it.
type span struct {
	from  instant
	lease time.Duration
}

// left returns the time until the owner gives the lease up.
func (s *span) left() time.Duration { return s.lease - margin(s.lease) - now().since(s.from) }

// ownership is one tenure of this process and its ownership context. The context ends no later than
// the lease. Err reads the clock. So after a freeze of the process it reports the end of the lease
// even if the timer has not fired yet.
type ownership struct {
	context.Context
	cancel context.CancelCauseFunc
	token  uint64
	watch  *suspendWatch
	span   atomic.Pointer[span]
	timer  *time.Timer // ends the ownership when the lease ends
}

// newOwnership begins an ownership. from is the time of the request that acquired the mutex. The
// context has the values of base, which does not end.
func newOwnership(base context.Context, w *suspendWatch, token uint64, from instant, lease time.Duration) *ownership {
	ctx, cancel := context.WithCancelCause(base)
	o := &ownership{Context: ctx, cancel: cancel, token: token, watch: w}
	o.renew(from, lease)
	o.timer = time.AfterFunc(math.MaxInt64, o.expire)
	o.timer.Reset(max(0, o.left()))
	w.add(o)
	return o
}

// expire ends the ownership unless it was renewed.
func (o *ownership) expire() {
	if left := o.left(); left > 0 {
		o.timer.Reset(left)
		return
	}
	o.end(ErrLost)
}

// end ends the ownership. Only the first call sets the cause.
func (o *ownership) end(cause error) {
	o.cancel(cause)
	o.timer.Stop()
	o.watch.remove(o)
}

// renew sets the lease that the request sent at from was granted. It returns false if a later
// request has set the lease before, because a late reply must not shorten it.
func (o *ownership) renew(from instant, lease time.Duration) bool {
	if s := o.span.Load(); s != nil && from.since(s.from) < 0 {
		return false
	}
	o.span.Store(&span{from, lease})
	return true
}

// left returns the time until the ownership ends. It is 0 or less if the ownership has ended.
func (o *ownership) left() time.Duration {
	if o.Context.Err() != nil {
		return 0
	}
	return o.span.Load().left()
}

// owner returns the ownership as an Owner. While the machine is suspended, the monotonic clock
// stands still, but the lease does not. So owner subtracts from the ends of both windows how long
// the machine was suspended since the lease began.
func (o *ownership) owner(t terms) Owner {
	s := o.span.Load()
	from := s.from.at.Add(s.from.suspended - now().suspended)
	return Owner{ID: t.id, Token: o.token, TTLAt: from.Add(min(t.ttl, s.lease)), TransitionAt: from.Add(s.lease)}
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

// Token returns the fencing token of an ownership context, or of a context derived from one. It
// returns 0 for any other context.
func Token(ctx context.Context) uint64 {
	token, _ := ctx.Value(tokenKey{}).(uint64)
	return token
}
