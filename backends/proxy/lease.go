package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// request runs a request about one mutex while it holds the mutex's lock.
func (e *Engine) request(ctx context.Context, mutex, contender string, f func(context.Context, *mutexState) error) error {
	return e.withState(ctx, mutex, contender, func(ctx context.Context, m *mutexState) error {
		return e.do(ctx, m, contender, func() error { return f(ctx, m) })
	})
}

func (e *Engine) withState(ctx context.Context, mutex, contender string, f func(context.Context, *mutexState) error) error {
	if err := e.store.CheckNames(mutex, contender); err != nil {
		return err
	}
	return e.serve(context.WithValue(ctx, answersKey{}, new(sync.Map)), func(ctx context.Context) error {
		m := e.ref(mutex)
		defer e.unref(m)
		return f(ctx, m)
	})
}

// Guard implements simba.Backend. Usually it sends one step.
//
// The owner's renewal needs no lock: Renew is atomic in the store and changes no tenure but the
// owner's. So no other step delays it, for example one whose packets the network drops. At most one
// renewal at a time runs like that, and none while another transaction has locked the mutex.
func (e *Engine) Guard(ctx context.Context, r simba.GuardRequest) (o simba.Outcome, err error) {
	err = e.withState(ctx, r.Mutex, r.Contender, func(ctx context.Context, m *mutexState) (err error) {
		if e.owns(m, r.Contender) && !m.locked.Load() && m.renewing.CompareAndSwap(false, true) {
			var ok bool
			o, ok, err = e.renewTenure(ctx, m, r)
			m.renewing.Store(false)
			if other := new(Elsewhere); errors.As(err, &other) {
				err = other.Ask(ctx)
			}
			if ok || err != nil && !isLocked(err) {
				return err
			}
		}
		return e.do(ctx, m, r.Contender, func() (err error) {
			o, err = e.guard(ctx, m, r)
			return err
		})
	})
	return o, err
}

func (e *Engine) guard(ctx context.Context, m *mutexState, r simba.GuardRequest) (simba.Outcome, error) {
	token := r.Token
	for range attempts {
		o, ok, err := e.renewTenure(ctx, m, r)
		if ok || err != nil {
			return o, err
		}
		s, err := e.refresh(ctx, m)
		if err != nil {
			return o, err
		}
		if !s.Live || s.Owner != r.Contender || token != 0 && token != s.Token {
			return e.outcome(m, simba.StatusLost, r.Contender, s), nil
		}
		r.Token = s.Token
	}
	return simba.Outcome{}, errKeepsChanging
}

// renewTenure renews the owner's lease. ok is false if there is no such tenure, or if the lease
// ended before the answer arrived.
func (e *Engine) renewTenure(ctx context.Context, m *mutexState, r simba.GuardRequest) (o simba.Outcome, ok bool, err error) {
	l := &Lease{Owner: r.Contender, TTL: r.TTL, Transition: r.Transition, Since: time.Now(), Token: r.Token}
	if ok, err = e.renew(ctx, m, l); !ok || err != nil {
		return o, false, err
	}
	e.Counts.Renewed.Add(1)
	e.noteRenewal(m, l)
	o, err = l.outcome(simba.StatusRenewed)
	o.Position = e.position(m, r.Contender)
	return o, err == nil, nil
}

// Release implements simba.Backend.
func (e *Engine) Release(ctx context.Context, r simba.ReleaseRequest) (released bool, _ simba.Seq, err error) {
	err = e.request(ctx, r.Mutex, r.Contender, func(ctx context.Context, m *mutexState) error {
		if released = e.endedElsewhere(ctx, m, simba.EventReleased, r.Reason); released {
			return nil // a wait that the contender has begun meanwhile goes on
		}
		from := From{Owner: r.Contender, Token: r.Token}
		if r.Session != 0 {
			e.mu.Lock()
			b := e.sessions[r.Mutex]
			e.mu.Unlock()
			if b.session != r.Session || b.Owner != r.Contender || r.Token != 0 && r.Token != b.Token {
				return nil
			}
			if from.Token = b.Token; b.Token == 0 {
				from.Mark = b.Mark
			} else if e.queue != nil { // the contender may have bound the lease at another server
				from.Acquired = b.Mark
			}
		} else if r.Token == 0 {
			e.Waiters.Grant(r.Mutex, r.Contender, Grant{}) // ends its wait without a lease
			e.leave(m, r.Contender, "left")
		}
		released, err = e.end(ctx, m, from, simba.EventReleased, r.Reason)
		if err == nil && !released && e.queue != nil && r.Session == 0 && r.Token == 0 {
			err = e.queue.Leave(ctx, m.mutex, r.Contender, true)
		}
		if err != nil && e.queue != nil {
			e.settleLater(m.mutex, r.Contender)
		}
		return err
	})
	return released, 0, err
}

// Break implements simba.Backend.
func (e *Engine) Break(ctx context.Context, mutex, reason string) (broken bool, _ simba.Seq, err error) {
	err = e.request(ctx, mutex, "", func(ctx context.Context, m *mutexState) error {
		if broken = e.endedElsewhere(ctx, m, simba.EventBroken, reason); broken {
			return nil
		}
		broken, err = e.end(ctx, m, From{}, simba.EventBroken, reason)
		return err
	})
	return broken, 0, err
}

// endedElsewhere reports whether another server has ended the tenure that a request ends, and records
// that. Another tenure may have begun since, so a refresh follows.
func (e *Engine) endedElsewhere(ctx context.Context, m *mutexState, kind simba.EventKind, reason string) bool {
	v, ended := Answers(ctx).Load(EndedElsewhere)
	if was, ok := v.(From); ok {
		e.announce(m, kind, State{Owner: was.Owner, Token: was.Token}, reason)
		e.Count(simba.Event{Kind: kind})
		e.mu.Lock()
		defer e.mu.Unlock()
		if m.stale = true; e.sessions[m.mutex].Token == was.Token {
			delete(e.sessions, m.mutex)
		}
	}
	return ended
}

// end ends the tenure that matches want, in which zero values match any. It reports whether there
// was such a tenure. The step names a token, so that it cannot end a later tenure if it is late. If
// this server knows the token, it does not read the mutex first.
func (e *Engine) end(ctx context.Context, m *mutexState, want From, kind simba.EventKind, reason string) (ended bool, err error) {
	from := want
	e.mu.Lock()
	if m.seen.Live && (want.Owner == "" || want.Owner == m.seen.Owner) && from.Token == 0 && from.Mark == 0 {
		from.Owner, from.Token = m.seen.Owner, m.seen.Token
	}
	e.mu.Unlock()
	for range attempts {
		if from.Token != 0 {
			_, ended, err := e.handOff(ctx, m, handoff{from: from, kind: kind, reason: reason})
			if err != nil || ended {
				return ended, err
			}
		}
		s, err := e.refresh(ctx, m)
		if err != nil {
			return false, err
		}
		if !s.Live || s.Owner == "" || want.Owner != "" && s.Owner != want.Owner || want.Token != 0 && want.Token != s.Token || want.Mark != 0 && want.Mark != s.Mark || want.Acquired != 0 {
			return false, e.handOffIfFree(ctx, m, s)
		}
		from.Owner, from.Token = s.Owner, s.Token
	}
	return false, errKeepsChanging
}

// Owner implements simba.Backend.
func (e *Engine) Owner(ctx context.Context, mutex string) (t simba.Tenure, _ simba.Seq, err error) {
	m, s, err := e.inspect(ctx, mutex)
	if err != nil || !s.Live || s.Owner == "" {
		return t, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t = simba.Tenure{
		Owner: s.Owner, Token: s.Token,
		AcquiredAt: s.AcquiredAt, TTLAt: s.TTLAt, TransitionAt: s.TransitionAt, Now: s.Now,
		TTL: s.ttlLeft(), Transition: s.left(), Waiters: len(m.entries),
	}
	if e.queue != nil {
		t.Waiters = s.Waiters
	}
	if b := e.sessions[mutex]; b.Owner == s.Owner && b.Token == s.Token {
		t.Session = b.session
	}
	return t, 0, nil
}

// Check implements simba.Backend.
func (e *Engine) Check(ctx context.Context, mutex string, token uint64) (bool, simba.Seq, error) {
	_, s, err := e.inspect(ctx, mutex)
	return err == nil && s.Live && s.Token == token, 0, err
}

// inspect reads a mutex for a request that changes nothing. It waits for no other request, unless
// the lease has ended and may be renewed by a step that is being committed.
func (e *Engine) inspect(ctx context.Context, mutex string) (m *mutexState, s State, err error) {
	err = e.withState(ctx, mutex, "", func(ctx context.Context, state *mutexState) (err error) {
		m = state
		if s, err = e.store.Read(ctx, mutex, e.queue != nil); err == nil && !s.Live && (s.Owner != "" || s.NextOwns) {
			if err = m.lock.lock(ctx, false); err == nil {
				s, err = e.refresh(ctx, m)
				m.lock.unlock()
			}
		}
		return err
	})
	return m, s, err
}

// read reads a mutex. The caller holds m.lock.
func (e *Engine) read(ctx context.Context, m *mutexState, settled bool) (s State, err error) {
	if !settled {
		return e.store.Read(ctx, m.mutex, false)
	}
	err = e.step(ctx, m, func() (err error) {
		s, err = e.store.Read(ctx, m.mutex, true)
		return err
	})
	return s, err
}

// binding ties a lease to a connection of this server, for SESSION. If the outcome of the grant is
// unknown, the token is 0, and the Mark identifies the lease.
type binding struct {
	session uint64
	Lease
}

// bind binds the lease of a mutex to a session. Session 0 removes the binding.
func (e *Engine) bind(mutex string, session uint64, l Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bindLocked(mutex, session, l)
}

func (e *Engine) bindLocked(mutex string, session uint64, l Lease) {
	if session == 0 {
		delete(e.sessions, mutex)
		return
	}
	e.sessions[mutex] = binding{session, l}
}
