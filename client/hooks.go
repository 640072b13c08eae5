package client

import (
	"context"
	"errors"
	"time"
)

// Hooks are functions that a Client calls when something happens to one of its contenders. They
// serve metrics, traces and tests. A hook may be nil.
//
// An attempt to acquire a mutex begins with its first request. If another contender owns the mutex
// or is next, the Client calls Contended once. The attempt ends with one call of Acquired or
// NotAcquired. A tenure begins with Acquired and ends with one call of Released or Lost.
//
// The Client may call hooks at the same time, but those of one contender in order, except that
// WorkDone, Asked and Renewed may overlap with others. It calls Acquired before the work begins, or
// Lock returns. If the server replies to the release in time, the Client calls Released before Do
// and Unlock return.
//
// A hook must not block, because it delays the contender, and must not wait until a method of the
// Client returns. A hook that panics ends the process.
//
// The context of a hook does not end. It has the values of the context of the caller, such as the
// span of a trace.
type Hooks struct {
	// Asked is called before each request to acquire (Token is 0), and before each renewal.
	Asked func(context.Context, HookEvent)

	// Contended is called when an attempt finds that another contender owns the mutex or is next.
	Contended func(context.Context, HookEvent)

	// Acquired is called when a tenure begins. Took is the time from the first request.
	Acquired func(context.Context, HookEvent)

	// NotAcquired is called when an attempt ends without a tenure. Took is the time from the first
	// request. Err is the error of the last request; nil means that it did not fail.
	NotAcquired func(context.Context, HookEvent)

	// Renewed is called when a lease is renewed.
	Renewed func(context.Context, HookEvent)

	// Released is called when the server has confirmed the release of the mutex. Took is the length
	// of the tenure. If the release fails, Released is called at the latest when the lease ends.
	// Err is then the error of the release.
	Released func(context.Context, HookEvent)

	// Lost is called when a tenure has ended because its lease expired or was ended by SIMBA.BREAK.
	// Took is the length of the tenure, and Err matches ErrLost.
	Lost func(context.Context, HookEvent)

	// WorkDone is called when the work of Do, TryDo or Lead, or a run of Every, has ended. Took is
	// the time since its start. Err is the error of the work. If the work panicked or ended its
	// goroutine, Err says so.
	WorkDone func(context.Context, HookEvent)
}

// HookEvent is what a hook reports.
type HookEvent struct {
	Mutex string
	ID    string // the contender's id
	Token uint64 // the fencing token of the tenure; 0 if there is none

	// Took is the length of the attempt, tenure or work that has ended.
	Took time.Duration

	// Owner is set in Contended, NotAcquired and Lost. It is the owner in the server's last reply.
	// The zero Owner means that the mutex is free, that another waiter is next, or that the owner
	// is not known.
	Owner Owner

	// Expired is for the hook Lost. It is true if the lease ended by the clock of this process. It
	// is false if the server replied that the tenure is over, for example after SIMBA.BREAK.
	Expired bool

	Err error // nil if nothing failed; see NotAcquired, Released, Lost and WorkDone
}

// errWorkEnded is the Err of WorkDone if the work has not returned.
var errWorkEnded = errors.New("the work panicked or ended its goroutine")

// report calls the hooks for one contender. Its fields change between attempts only.
type report struct {
	ctx   context.Context // has the values of the caller's context, and does not end
	terms *terms

	since     instant // when the attempt or the tenure began
	began     bool    // an attempt has begun
	contended bool    // Contended was called for this attempt
	token     uint64  // 0 = no tenure
}

func (p *report) call(hook func(*Hooks) func(context.Context, HookEvent), e HookEvent) {
	for i := range p.terms.hooks {
		if f := hook(&p.terms.hooks[i]); f != nil {
			e.Mutex, e.ID = p.terms.mutex, p.terms.id
			f(p.ctx, e)
		}
	}
}

// asks reports that a request is sent; token 0 = to acquire.
func (p *report) asks(token uint64) {
	if token == 0 && !p.began {
		p.since, p.began, p.contended, p.token = now(), true, false, 0
	}
	p.call(func(h *Hooks) func(context.Context, HookEvent) { return h.Asked }, HookEvent{Token: token})
}

// waits reports, once in an attempt, that another contender owns the mutex or is next.
func (p *report) waits(owner Owner) {
	if !p.contended {
		p.contended = true
		p.call(func(h *Hooks) func(context.Context, HookEvent) { return h.Contended }, HookEvent{Owner: owner})
	}
}

// acquired ends the attempt with a tenure.
func (p *report) acquired(token uint64) {
	e := HookEvent{Token: token, Took: now().since(p.since)}
	p.since, p.began, p.token = now(), false, token
	p.call(func(h *Hooks) func(context.Context, HookEvent) { return h.Acquired }, e)
}

// gaveUp ends the attempt, if one has begun, without a tenure.
func (p *report) gaveUp(owner Owner, err error) {
	if p.began {
		p.began = false
		p.call(func(h *Hooks) func(context.Context, HookEvent) { return h.NotAcquired },
			HookEvent{Took: now().since(p.since), Owner: owner, Err: err})
	}
}

func (p *report) renewed() {
	p.call(func(h *Hooks) func(context.Context, HookEvent) { return h.Renewed }, HookEvent{Token: p.token})
}

// lost ends the tenure. owner is the next owner; the zero Owner means that it is not known.
func (p *report) lost(owner Owner, expired bool) {
	p.call(func(h *Hooks) func(context.Context, HookEvent) { return h.Lost },
		HookEvent{Token: p.token, Took: now().since(p.since), Owner: owner, Expired: expired, Err: ErrLost})
}

// released ends the tenure. err is the error of the release.
func (p *report) released(err error) {
	p.call(func(h *Hooks) func(context.Context, HookEvent) { return h.Released },
		HookEvent{Token: p.token, Took: now().since(p.since), Err: err})
}

// work notes that work begins. The caller calls done with its error.
func (l *lease) work() (done func(error)) {
	began := now()
	return func(err error) {
		l.report.call(func(h *Hooks) func(context.Context, HookEvent) { return h.WorkDone },
			HookEvent{Token: l.token, Took: now().since(began), Err: err})
	}
}
