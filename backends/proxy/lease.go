package proxy

import (
	"context"
	"errors"
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
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	m := e.ref(mutex)
	defer e.unref(m)
	return e.fail(f(ctx, m))
}

// Guard implements simba.Backend. Usually it sends one step.
func (e *Engine) Guard(ctx context.Context, r simba.GuardRequest) (o simba.Outcome, err error) {
	err = e.withState(ctx, r.Mutex, r.Contender, func(ctx context.Context, m *mutexState) (err error) {
		guard := func() error {
			o, err = e.guard(ctx, m, r)
			return err
		}
		if !e.owns(m, r.Contender) {
			return e.do(ctx, m, r.Contender, guard)
		}
		err = e.within(ctx, overtakeAfter, func(short context.Context) error { return e.do(short, m, r.Contender, guard) })
		overtakes := false
		if errors.Is(err, errBusy) {
			if o, overtakes = e.overtake(ctx, m, r); overtakes {
				return nil
			}
		}
		if errors.Is(err, errBusy) || isLocked(err) {
			return e.do(ctx, m, r.Contender, guard)
		}
		return err
	})
	return o, err
}

// overtakeAfter is how long the owner's Guard waits for the step of another request. Then it
// overtakes the step.
const overtakeAfter = 400 * time.Millisecond

// overtake renews the owner's lease while another step of the mutex is out for long, for example
// because the network drops the packets of its connection. The caller does not hold m.lock. Renew
// is atomic in the store and changes no tenure but the owner's, so it may run beside any step.
//
// One renewal at a time overtakes, and none if another transaction has locked the mutex. If ok is
// false, the caller waits for the step.
func (e *Engine) overtake(ctx context.Context, m *mutexState, r simba.GuardRequest) (o simba.Outcome, ok bool) {
	e.mu.Lock()
	may := !m.overtaken && !e.locked[m.mutex]
	m.overtaken = m.overtaken || may
	e.mu.Unlock()
	if !may {
		return o, false
	}
	l := &Lease{Owner: r.Contender, TTL: r.TTL, Transition: r.Transition, Since: time.Now(), Token: r.Token}
	ok, err := e.renew(ctx, m, l)
	if ok = ok && err == nil; ok {
		o, err = l.outcome(simba.StatusRenewed)
		ok = err == nil
	}
	e.mu.Lock()
	m.overtaken = false
	if ok && m.lastOwner == l.Owner {
		m.leaseEnd = l.Since.Add(l.TTL + l.Transition)
	}
	e.mu.Unlock()
	if ok {
		e.counts.renewed.Add(1)
		o.Position = e.position(m, r.Contender)
	}
	return o, ok
}

func (e *Engine) guard(ctx context.Context, m *mutexState, r simba.GuardRequest) (o simba.Outcome, err error) {
	token := r.Token // after a read, the token that the mutex had
	for range attempts {
		l := &Lease{Owner: r.Contender, TTL: r.TTL, Transition: r.Transition, Since: time.Now(), Token: token}
		ok, err := e.renew(ctx, m, l)
		if err != nil {
			return o, err
		}
		if ok {
			e.counts.renewed.Add(1)
			e.noteLease(m, l)
			if o, err = l.outcome(simba.StatusRenewed); err == nil {
				o.Position = e.position(m, r.Contender)
				return o, nil
			}
			continue // the lease ended before the answer arrived
		}
		s, err := e.refresh(ctx, m)
		if err != nil {
			return o, err
		}
		if !s.Live || s.Owner != r.Contender || r.Token != 0 && r.Token != s.Token {
			return e.outcome(m, simba.StatusLost, r.Contender, s), nil
		}
		token = s.Token
	}
	return o, errKeepsChanging
}

// Release implements simba.Backend.
func (e *Engine) Release(ctx context.Context, r simba.ReleaseRequest) (released bool, _ simba.Seq, err error) {
	err = e.request(ctx, r.Mutex, r.Contender, func(ctx context.Context, m *mutexState) error {
		from := From{Owner: r.Contender, Token: r.Token}
		if r.Session != 0 {
			b, bound := e.boundTo(r.Mutex, r.Session)
			if !bound || b.Owner != r.Contender || r.Token != 0 && r.Token != b.Token {
				return nil
			}
			if from.Token = b.Token; b.Token == 0 {
				from.Mark = b.Mark
			}
		} else if r.Token == 0 {
			e.leaveQueue(m, r.Contender)
		}
		released, err = e.end(ctx, m, from, simba.EventReleased, r.Reason)
		return err
	})
	return released, 0, err
}

// Break implements simba.Backend.
func (e *Engine) Break(ctx context.Context, mutex, reason string) (broken bool, _ simba.Seq, err error) {
	err = e.request(ctx, mutex, "", func(ctx context.Context, m *mutexState) error {
		broken, err = e.end(ctx, m, From{}, simba.EventBroken, reason)
		return err
	})
	return broken, 0, err
}

// end ends the tenure that matches want, in which zero values match any. It reports whether there
// was such a tenure. The step names a token, so that it cannot end a later tenure if it is late. If
// this server granted the tenure, it knows the token, and does not read the mutex first.
func (e *Engine) end(ctx context.Context, m *mutexState, want From, kind simba.EventKind, reason string) (ended bool, err error) {
	from := want
	if was, ok := e.announced(m.mutex); ok && from.Token == 0 && from.Mark == 0 && was.Owner == want.Owner {
		from.Token = was.Token
	}
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
		if !s.Live || want.Owner != "" && s.Owner != want.Owner || want.Token != 0 && want.Token != s.Token || want.Mark != 0 && want.Mark != s.Mark {
			return false, e.handOffIfFree(ctx, m, s)
		}
		from.Owner, from.Token = s.Owner, s.Token
	}
	return false, errKeepsChanging
}

// leaveQueue removes a contender's queue entry at its request.
func (e *Engine) leaveQueue(m *mutexState, contender string) {
	e.mu.Lock()
	w := m.index[contender]
	if w != nil {
		m.removeLocked(w)
		e.waiters.Grant(m.mutex, contender, Grant{Token: removedToken})
	}
	e.mu.Unlock()
	if w != nil {
		e.eventLog.Record(simba.Event{Kind: simba.EventLeft, Mutex: m.mutex, Owner: contender, Reason: "left"})
	}
}

// Owner implements simba.Backend.
func (e *Engine) Owner(ctx context.Context, mutex string) (t simba.Tenure, _ simba.Seq, err error) {
	m, s, err := e.inspect(ctx, mutex)
	if err != nil || !s.Live {
		return t, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t = simba.Tenure{
		Owner: s.Owner, Token: s.Token,
		AcquiredAt: s.AcquiredAt, TTLAt: s.TTLAt, TransitionAt: s.TransitionAt, Now: s.Now,
		TTL: s.ttlLeft(), Transition: s.left(), Waiters: len(m.entries),
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
	if err := e.store.CheckNames(mutex, ""); err != nil {
		return nil, s, err
	}
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return nil, s, err
	}
	defer done()
	m = e.ref(mutex)
	defer e.unref(m)
	if s, err = e.store.Read(ctx, mutex, false); err == nil && s.Owner != "" && !s.Live {
		if err = m.lock.lock(ctx, false); err == nil {
			s, err = e.settle(ctx, m, s)
			m.lock.unlock()
		}
	}
	if err == nil {
		e.noteEnd(mutex, s)
	}
	return m, s, e.fail(err)
}

// settle reads a mutex whose lease has ended again. A step that renewed the lease in time may not
// have committed yet. If another transaction keeps the mutex locked for long, settle returns the
// state as it was read. The caller holds m.lock.
func (e *Engine) settle(ctx context.Context, m *mutexState, was State) (s State, err error) {
	s, err = e.read(ctx, m, true)
	if isLocked(err) {
		return was, nil
	}
	return s, err
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

func (e *Engine) boundTo(mutex string, session uint64) (binding, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.sessions[mutex]
	return b, ok && b.session == session
}
