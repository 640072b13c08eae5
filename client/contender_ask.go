package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// errOwnershipEnded means that the ownership ended while its renewal was in progress.
var errOwnershipEnded = errors.New("the ownership has ended")

// answer is the outcome of one request.
type answer struct {
	n     uint64 // the number of the request
	token uint64 // the token that a GUARD sends; 0 = the request was an ACQUIRE
	sent  instant
	reply reply
	err   error
}

// ask sends a GUARD if the contender is the owner, else an ACQUIRE. It waits for the reply until
// Timeout, or until the ownership ends or stop is called. An owner waits at most for a third of the
// time that is left until the ownership ends. So it can repeat the request often enough to pass
// dead connections of the pool. The request continues after this wait, for at most the time that is
// left.
//
// A late reply to an earlier GUARD of the present tenure does not end the wait, unless it says that
// the tenure is over. If it prolongs the lease, the wait begins anew.
func (r *contenderRun) ask() (got reply, sent instant, err error) {
	timeout, token := r.c.timeout, uint64(0)
	if r.own != nil {
		timeout, token = r.own.left(), r.own.token
	}
	enough := time.NewTimer(r.patience())
	defer enough.Stop()
	slots := r.slots
	n := uint64(0) // not sent yet
	ended := r.ownershipEnded()
	for {
		select {
		case slots <- struct{}{}:
			slots = nil
			n = r.send(token, timeout)
		case a := <-r.answers:
			if a.n != n {
				switch {
				case token == 0, a.token != token, a.err != nil:
				case a.reply.status == statusLost:
					return a.reply, a.sent, nil
				case r.own.renew(a.sent, r.granted(a.reply)):
					enough.Reset(r.patience())
				}
				continue
			}
			r.uncertain = r.uncertain || token == 0 && a.err != nil && (!refused(a.err) || misconfigured(a.err))
			return a.reply, a.sent, a.err
		case <-ended:
			return got, sent, errOwnershipEnded
		case <-enough.C:
			r.uncertain = r.uncertain || token == 0
			return got, sent, errNoAnswer
		case <-r.quit:
			r.uncertain = r.uncertain || token == 0
			return got, sent, ErrReleased
		}
	}
}

// patience returns how long ask waits for a reply.
func (r *contenderRun) patience() time.Duration {
	if r.own == nil {
		return r.c.timeout
	}
	return max(min(r.c.timeout, r.own.left()/3), time.Millisecond)
}

// granted returns the lease that a reply grants, from the time of the request.
func (r *contenderRun) granted(reply reply) time.Duration { return min(r.lease(), reply.transition) }

// send sends a request and returns the number of the request. The request is canceled after
// timeout. The caller has taken a slot.
func (r *contenderRun) send(token uint64, timeout time.Duration) uint64 {
	if r.asking != nil {
		r.asking(token != 0)
	}
	r.sequence++
	a := answer{n: r.sequence, token: token, sent: now()}
	if token == 0 {
		r.fresh = r.fresh || !r.present
		r.present = true
		r.report.asked(a.sent)
	}
	r.sent = a.sent
	terms := r.terms // fail may shorten the lease while the request is in progress
	r.requests.Go(func() {
		parent := context.Background()
		if token != 0 {
			parent = r.guards
		}
		ctx, cancel := context.WithTimeout(parent, timeout)
		defer cancel()
		if token != 0 {
			a.reply, a.err = r.c.guard(ctx, terms, token)
		} else {
			a.reply, a.err = r.c.acquire(ctx, terms, r.noQueue)
		}
		<-r.slots // before the answer, so that len(r.slots) then counts only other requests
		select {
		case r.answers <- a:
		default: // the buffer is full of older answers
		}
	})
	return a.n
}

// fail handles a request that failed, and waits until the next one is due. It returns false when
// the run is over.
func (r *contenderRun) fail(err error) bool {
	var long *TooLongError
	if errors.As(err, &long) && r.own == nil && r.lease() > long.Longest && r.fit(long.Longest) {
		r.c.longest.Store(int64(long.Longest))
		r.c.log.Warn("the server refuses the default lease as too long; a shorter one is used", "ttl", r.ttl, "transition", r.transition)
		return !r.stopping()
	}
	closed := errors.Is(err, ErrClosed)
	r.report.failed(err)
	if r.fresh && refused(err) && !r.uncertain && len(r.slots) == 0 {
		r.present = false // the server has refused all requests, so there is nothing to release
	}
	final, longest := closed || refused(err), min(r.ttl, retryPauseMax)
	if misconfigured(err) {
		longest = misconfiguredPauseMax
	}
	switch {
	case closed:
		r.c.log.Error("the contender stops: the go-redis client is closed", "mutex", r.mutex, "contender", r.id, "err", err)
	case !final:
		r.c.outage.failed(r.terms, err)
	case !r.refused:
		r.refused = true
		r.c.log.Error("the server refuses the contender's requests", "mutex", r.mutex, "contender", r.id, "err", err)
	}
	if r.failed != nil {
		r.failed(err, final, r.own != nil)
	}
	if closed {
		return false
	}
	if r.own != nil {
		d := max(renewalPauseMin, min(r.pause, r.own.left()/renewalPauses))
		if final {
			r.pause = min(2*r.pause, longest)
		}
		return r.sleep(d, nil)
	}
	if r.once {
		return false
	}
	if r.every != 0 {
		return r.sleep(r.every, r.wake)
	}
	r.subscribe() // a new subscription shows that the server is back
	d := r.pause
	if errors.Is(err, errNoAnswer) {
		d = retryPause // the contender has already waited for the timeout
	} else {
		r.pause = min(2*r.pause, longest)
	}
	return r.sleep(d/2+rand.N(d), r.wake)
}
