package client

import (
	"context"
	"errors"
)

// report calls the Hooks for one contenderRun. Only the goroutine of the run calls its methods.
type report struct {
	hooks *Hooks
	ctx   context.Context // the context that the hooks get
	terms terms

	phase     phase
	since     instant // when the phase began
	token     uint64  // the token of the tenure; 0 = no tenure
	contended bool    // whether Contended was called for this attempt
	failure   error   // the error of the last request of this attempt
}

// phase is the phase of a run: idle, an attempt to acquire the mutex, or a tenure.
type phase int

const (
	idle phase = iota
	attempting
	owning
)

// asked notes that an ACQUIRE is sent. It begins an attempt if none has begun.
func (p *report) asked(sent instant) {
	if p.phase == idle {
		p.phase, p.since, p.contended, p.failure = attempting, sent, false, nil
	}
}

func (p *report) failed(err error) { p.failure = err }

// waits reports, once in an attempt, that another contender owns the mutex or is next.
func (p *report) waits(owner Owner) {
	p.failure = nil
	if p.phase != attempting || p.contended {
		return
	}
	p.contended = true
	e := p.event()
	e.Took, e.Owner = 0, owner
	call(p.hooks.Contended, p.ctx, e)
}

// acquired ends the attempt with a tenure.
func (p *report) acquired(token uint64) {
	e := p.event()
	e.Token = token
	p.phase, p.since, p.token = owning, now(), token
	call(p.hooks.Acquired, p.ctx, e)
}

// gaveUp ends the attempt, if there is one, without a tenure.
func (p *report) gaveUp(owner Owner) {
	if p.phase != attempting {
		return
	}
	e := p.event()
	e.Owner, e.Err = owner, p.failure
	p.phase = idle
	call(p.hooks.NotAcquired, p.ctx, e)
}

// lost ends the tenure, if there is one, and calls the hook Lost. owner is the next owner; the zero
// Owner means that it is not known.
func (p *report) lost(owner Owner, expired bool) {
	if p.phase != owning {
		return
	}
	e := p.event()
	e.Owner, e.Expired, e.Err = owner, expired, ErrLost
	p.phase, p.token = idle, 0
	call(p.hooks.Lost, p.ctx, e)
}

// released ends the tenure, if there is one. err is the error of the release. If it matches
// ErrLost, released calls the hook Lost, else the hook Released.
func (p *report) released(err error) {
	switch {
	case errors.Is(err, ErrLost):
		p.lost(Owner{}, false)
	case p.phase == owning:
		e := p.event()
		e.Err = err
		p.phase, p.token = idle, 0
		call(p.hooks.Released, p.ctx, e)
	}
}

// event returns an event of the present phase. Its Took is the time since the phase began.
func (p *report) event() HookEvent {
	return HookEvent{Mutex: p.terms.mutex, ID: p.terms.id, Token: p.token, Took: now().since(p.since)}
}
