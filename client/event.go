package client

import (
	"context"
	"errors"
	"time"
)

// Event is something that has happened to a contender of a Client. It serves metrics, traces and
// tests, see [Options].
//
// An attempt to acquire a mutex begins with its first request. If another contender owns the mutex
// or is next, there is one event Contended. The attempt ends with one Acquired or NotAcquired. A
// tenure begins with Acquired and ends with one Released or Lost.
//
// Events of different contenders may come at the same time. Those of one contender come in order,
// except that WorkDone, Asked and Renewed may overlap with others. Acquired comes before the work
// begins, or Lock returns. If the server replies to the release in time, Released comes before Do
// and Unlock return.
type Event struct {
	// Kind is one of:
	//
	//	Asked        before each request to acquire (Token is 0), and before each renewal
	//	Contended    an attempt finds that another contender owns the mutex or is next
	//	Acquired     a tenure begins; Took is the time from the first request
	//	NotAcquired  an attempt ends without a tenure; Took is the time from the first request, and
	//	             Err is the error of the last request, nil if it did not fail
	//	Renewed      a lease is renewed
	//	Released     the server has confirmed the release; Took is the length of the tenure. If the
	//	             release fails, the event comes when no lease can last any more, and Err is the
	//	             error of the release
	//	Lost         the lease expired or was ended by SIMBA.BREAK; Took is the length of the tenure,
	//	             and Err matches ErrLost
	//	WorkDone     the work of Do, TryDo or Lead, or a run of Every, has ended; Took is its time, and
	//	             Err its error. If it panicked or ended its goroutine, Err says so
	Kind string

	Mutex string
	ID    string        // the contender's id
	Token uint64        // the fencing token of the tenure; 0 if there is none
	Took  time.Duration // the length of the attempt, tenure or work that has ended

	// Owner is set in Contended, NotAcquired and Lost. It is the owner in the server's last reply.
	// The zero Owner means that the mutex is free, that another waiter is next, or that the owner
	// is not known.
	Owner Owner

	// Expired is for Lost. It is true if the lease ended by the clock of this process. It is false
	// if the server replied that the tenure is over, for example after SIMBA.BREAK.
	Expired bool

	Err error // nil if nothing failed
}

// errWorkEnded is the Err of WorkDone if the work has not returned.
var errWorkEnded = errors.New("the work panicked or ended its goroutine")

// report calls the hook for one contender. Its fields change between attempts only.
type report struct {
	hook  func(context.Context, Event)
	ctx   context.Context // has the values of the caller's context, and does not end
	terms *terms

	since     instant // when the attempt or the tenure began
	began     bool    // an attempt has begun
	contended bool    // the event Contended of this attempt was reported
	token     uint64  // 0 = no tenure
}

func (p *report) call(e Event) {
	if p.hook != nil {
		e.Mutex, e.ID = p.terms.mutex, p.terms.id
		p.hook(p.ctx, e)
	}
}

// asks reports that a request is sent; token 0 = to acquire.
func (p *report) asks(token uint64) {
	if token == 0 && !p.began {
		p.since, p.began, p.contended, p.token = now(), true, false, 0
	}
	p.call(Event{Kind: "Asked", Token: token})
}

// waits reports, once in an attempt, that another contender owns the mutex or is next.
func (p *report) waits(owner Owner) {
	if !p.contended {
		p.contended = true
		p.call(Event{Kind: "Contended", Owner: owner})
	}
}

// acquired ends the attempt with a tenure.
func (p *report) acquired(token uint64) {
	e := Event{Kind: "Acquired", Token: token, Took: now().since(p.since)}
	p.since, p.began, p.token = now(), false, token
	p.call(e)
}

// gaveUp ends the attempt, if one has begun, without a tenure.
func (p *report) gaveUp(owner Owner, err error) {
	if p.began {
		p.began = false
		p.call(Event{Kind: "NotAcquired", Took: now().since(p.since), Owner: owner, Err: err})
	}
}

func (p *report) renewed() { p.call(Event{Kind: "Renewed", Token: p.token}) }

// lost ends the tenure. owner is the next owner; the zero Owner means that it is not known.
func (p *report) lost(owner Owner, expired bool) {
	p.call(Event{Kind: "Lost", Token: p.token, Took: now().since(p.since), Owner: owner, Expired: expired, Err: ErrLost})
}

// released ends the tenure. err is the error of the release.
func (p *report) released(err error) {
	p.call(Event{Kind: "Released", Token: p.token, Took: now().since(p.since), Err: err})
}

// workDone reports that work has ended.
func (p *report) workDone(began instant, err error) {
	p.call(Event{Kind: "WorkDone", Token: p.token, Took: now().since(began), Err: err})
}
