package mysql

import (
	"context"
	"sync"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Guard implements simba.Backend. It is one statement, and waits for nobody in the
// gate, only for other GUARDs of a mutex whose row is locked: a renewal must not come late.
func (b *Backend) Guard(ctx context.Context, r simba.GuardRequest) (o simba.Outcome, err error) {
	if err := b.checkNames(r.Mutex, r.Contender); err != nil {
		return o, err
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return o, err
	}
	defer done()
	l := b.hold(r.Mutex)
	defer b.drop(l)
	o, err = b.guard(ctx, l, r)
	return o, b.failAt(l, err)
}

func (b *Backend) guard(ctx context.Context, l *line, r simba.GuardRequest) (o simba.Outcome, err error) {
	ask := r
	for range attempts {
		t, ok, err := b.guardOnce(ctx, l, ask)
		if err != nil {
			return o, err
		}
		if ok {
			b.counts.renewed.Add(1)
			b.guarded(l, t)
			b.extend(l.mutex, t)
			o, err := granted(simba.StatusRenewed, t)
			if err != nil {
				continue // the lease was over before the answer came
			}
			o.Position = b.position(l, r.Contender)
			return o, nil
		}
		s, err := b.read(ctx, l.mutex)
		if err != nil {
			return o, err
		}
		if !s.live || s.owner != r.Contender || r.Token != 0 && r.Token != s.token {
			return b.outcome(l, simba.StatusLost, r.Contender, s), nil
		}
		ask.Token = s.token
	}
	return o, errRestless
}

// guardOnce asks the table. GUARDs that wait for the row do so one at a time, with the
// owner's first. One that is overdue holds up no other: its connection may be dead.
func (b *Backend) guardOnce(ctx context.Context, l *line, r simba.GuardRequest) (t lease, ok bool, err error) {
	if waits := b.store.waits; !waits.always && !waits.isLocked(l.mutex) {
		if t, ok, err = b.store.guard(brief(ctx), r); !isConflict(err) {
			return t, ok, err
		}
	}
	if err := l.renewing.enter(ctx, b.owns(l, r.Contender)); err != nil {
		return t, false, err
	}
	leave := sync.OnceFunc(l.renewing.leave)
	defer leave()
	return b.store.guard(whenOverdue(ctx, leave), r)
}

// Release implements simba.Backend.
func (b *Backend) Release(ctx context.Context, r simba.ReleaseRequest) (bool, simba.Seq, error) {
	if err := b.checkNames(r.Mutex, r.Contender); err != nil {
		return false, 0, err
	}
	from := holder{owner: r.Contender, token: r.Token}
	if r.Session != 0 {
		s, ok := b.boundTo(r.Mutex, r.Session)
		if !ok || s.contender != r.Contender || r.Token != 0 && r.Token != s.token {
			if b.ctx.Err() != nil {
				return false, 0, simba.ErrStopped
			}
			return false, 0, nil
		}
		from.token, from.at = s.token, 0
		if s.token == 0 {
			from.at = s.at
		}
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return false, 0, err
	}
	defer done()
	l := b.hold(r.Mutex)
	defer b.drop(l)
	released, err := b.release(ctx, l, r, from)
	return released, 0, b.failAt(l, err)
}

func (b *Backend) release(ctx context.Context, l *line, r simba.ReleaseRequest, from holder) (released bool, err error) {
	if err := l.gate.enter(ctx, b.owns(l, r.Contender)); err != nil {
		return false, err
	}
	defer l.gate.leave()
	b.lapse(l)
	if r.Token == 0 && r.Session == 0 {
		b.depart(l, r.Contender)
	}
	now := from // with the token that the last look has shown
	for range attempts {
		released, _, err := b.passOn(ctx, l, passage{from: now, kind: simba.EventReleased, reason: r.Reason})
		if err != nil || released {
			return released, err
		}
		s, err := b.look(ctx, l, false)
		if err != nil {
			return false, err
		}
		if !s.live || s.owner != from.owner || from.token != 0 && from.token != s.token || from.at != 0 && from.at != s.acquiredAt {
			return false, b.offer(ctx, l, s)
		}
		now.token = s.token
	}
	return false, errRestless
}

// depart takes a contender out of the queue at its own wish.
func (b *Backend) depart(l *line, contender string) {
	b.mu.Lock()
	e := l.index[contender]
	if e != nil {
		l.removeLocked(e)
		b.waiters.Grant(l.mutex, contender, proxy.Grant{Token: dismissed})
	}
	b.mu.Unlock()
	if e != nil {
		b.eventLog.Announce(simba.Event{Kind: simba.EventLeft, Mutex: l.mutex, Owner: contender, Reason: "left"})
	}
}

// Break implements simba.Backend.
func (b *Backend) Break(ctx context.Context, mutex, reason string) (bool, simba.Seq, error) {
	if err := b.checkNames(mutex, ""); err != nil {
		return false, 0, err
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return false, 0, err
	}
	defer done()
	l := b.hold(mutex)
	defer b.drop(l)
	broken, err := b.breakTenure(ctx, l, reason)
	return broken, 0, b.failAt(l, err)
}

func (b *Backend) breakTenure(ctx context.Context, l *line, reason string) (bool, error) {
	if err := l.gate.enter(ctx, false); err != nil {
		return false, err
	}
	defer l.gate.leave()
	b.lapse(l)
	for range attempts {
		s, err := b.look(ctx, l, false)
		if err != nil {
			return false, err
		}
		if !s.live {
			return false, b.offer(ctx, l, s)
		}
		broken, _, err := b.passOn(ctx, l, passage{
			from: holder{owner: s.owner, token: s.token}, kind: simba.EventBroken, reason: reason,
		})
		if err != nil || broken {
			return broken, err
		}
	}
	return false, errRestless
}

// Owner implements simba.Backend.
func (b *Backend) Owner(ctx context.Context, mutex string) (t simba.Tenure, _ simba.Seq, err error) {
	l, s, err := b.ask(ctx, mutex)
	if err != nil || !s.live {
		return t, 0, err
	}
	b.mu.Lock()
	waiters := len(l.entries)
	b.mu.Unlock()
	return simba.Tenure{
		Owner: s.owner, Token: s.token,
		AcquiredAt: s.acquiredAt, TTLAt: s.ttlAt, TransitionAt: s.transitionAt, Now: s.now,
		TTL: s.ttlLeft(), Transition: s.left(), Waiters: waiters,
	}, 0, nil
}

// Check implements simba.Backend.
func (b *Backend) Check(ctx context.Context, mutex string, token uint64) (bool, simba.Seq, error) {
	_, s, err := b.ask(ctx, mutex)
	return err == nil && s.live && s.token == token, 0, err
}

// ask reads a mutex for a request that changes nothing.
func (b *Backend) ask(ctx context.Context, mutex string) (*line, row, error) {
	if err := b.checkNames(mutex, ""); err != nil {
		return nil, row{}, err
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, row{}, err
	}
	defer done()
	l := b.hold(mutex)
	defer b.drop(l)
	s, err := b.read(ctx, mutex)
	if err == nil {
		b.noticeEnd(mutex, s)
	}
	return l, s, b.failAt(l, err)
}

// noticeEnd announces the end of a tenure that began here, if a row that was read
// shows it.
func (b *Backend) noticeEnd(mutex string, s row) {
	e, ok := b.eventLog.Last(mutex)
	if ok && e.Kind == simba.EventAcquired && e.Token == s.token && e.Owner == s.owner && !s.live {
		b.tellChange(mutex, row{owner: e.Owner, token: e.Token, live: true}, s)
	}
}
