package mysql

import (
	"context"
	"sync"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Guard implements simba.Backend. Usually it sends one statement. It does not take m.lock, since a
// renewal must not be late. It waits only for other GUARDs of the mutex, and only while the row is
// locked.
func (b *Backend) Guard(ctx context.Context, r simba.GuardRequest) (o simba.Outcome, err error) {
	if err := b.checkNames(r.Mutex, r.Contender); err != nil {
		return o, err
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return o, err
	}
	defer done()
	m := b.ref(r.Mutex)
	defer b.unref(m)
	o, err = b.guard(ctx, m, r)
	return o, b.failAt(m, err)
}

func (b *Backend) guard(ctx context.Context, m *mutexState, r simba.GuardRequest) (o simba.Outcome, err error) {
	ask := r // after a read, ask.Token is the token that the row had
	for range attempts {
		t, ok, err := b.guardOnce(ctx, m, ask)
		if err != nil {
			return o, err
		}
		if ok {
			b.counts.renewed.Add(1)
			b.noteRenewal(m, t)
			b.extend(m.mutex, t)
			o, err := granted(simba.StatusRenewed, t)
			if err != nil {
				continue // the lease ended before the answer arrived
			}
			o.Position = b.position(m, r.Contender)
			return o, nil
		}
		s, err := b.read(ctx, m.mutex)
		if err != nil {
			return o, err
		}
		if !s.live || s.owner != r.Contender || r.Token != 0 && r.Token != s.token {
			return b.outcome(m, simba.StatusLost, r.Contender, s), nil
		}
		ask.Token = s.token
	}
	return o, errKeepsChanging
}

// guardOnce sends the statement. GUARDs that wait for a locked row run one at a time, and those of
// the owner run first. If one GUARD takes longer than any lock wait, its connection may be broken.
// Then the next GUARD starts without waiting for it.
func (b *Backend) guardOnce(ctx context.Context, m *mutexState, r simba.GuardRequest) (t lease, ok bool, err error) {
	if waits := b.store.waits; !waits.alwaysWaits && !waits.isLocked(m.mutex) {
		if t, ok, err = b.store.guard(withoutLockWait(ctx), r); !isConflict(err) {
			return t, ok, err
		}
	}
	if err := m.renewals.lock(ctx, b.owns(m, r.Contender)); err != nil {
		return t, false, err
	}
	leave := sync.OnceFunc(m.renewals.unlock)
	defer leave()
	return b.store.guard(withOverdue(ctx, leave), r)
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
	m := b.ref(r.Mutex)
	defer b.unref(m)
	released, err := b.release(ctx, m, r, from)
	return released, 0, b.failAt(m, err)
}

func (b *Backend) release(ctx context.Context, m *mutexState, r simba.ReleaseRequest, from holder) (released bool, err error) {
	if err := m.lock.lock(ctx, b.owns(m, r.Contender)); err != nil {
		return false, err
	}
	defer m.lock.unlock()
	b.expireEntries(m)
	if r.Token == 0 && r.Session == 0 {
		b.leaveQueue(m, r.Contender)
	}
	now := from // after a refresh, now.token is the token that the row had
	for range attempts {
		released, _, err := b.handOff(ctx, m, handoff{from: now, kind: simba.EventReleased, reason: r.Reason})
		if err != nil || released {
			return released, err
		}
		s, err := b.refresh(ctx, m, false)
		if err != nil {
			return false, err
		}
		if !s.live || s.owner != from.owner || from.token != 0 && from.token != s.token || from.at != 0 && from.at != s.acquiredAt {
			return false, b.handOffIfFree(ctx, m, s)
		}
		now.token = s.token
	}
	return false, errKeepsChanging
}

// leaveQueue removes a contender's queue entry at its request.
func (b *Backend) leaveQueue(m *mutexState, contender string) {
	b.mu.Lock()
	e := m.index[contender]
	if e != nil {
		m.removeLocked(e)
		b.waiters.Grant(m.mutex, contender, proxy.Grant{Token: removedToken})
	}
	b.mu.Unlock()
	if e != nil {
		b.eventLog.Announce(simba.Event{Kind: simba.EventLeft, Mutex: m.mutex, Owner: contender, Reason: "left"})
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
	m := b.ref(mutex)
	defer b.unref(m)
	broken, err := b.breakTenure(ctx, m, reason)
	return broken, 0, b.failAt(m, err)
}

func (b *Backend) breakTenure(ctx context.Context, m *mutexState, reason string) (bool, error) {
	if err := m.lock.lock(ctx, false); err != nil {
		return false, err
	}
	defer m.lock.unlock()
	b.expireEntries(m)
	for range attempts {
		s, err := b.refresh(ctx, m, false)
		if err != nil {
			return false, err
		}
		if !s.live {
			return false, b.handOffIfFree(ctx, m, s)
		}
		broken, _, err := b.handOff(ctx, m, handoff{
			from: holder{owner: s.owner, token: s.token}, kind: simba.EventBroken, reason: reason,
		})
		if err != nil || broken {
			return broken, err
		}
	}
	return false, errKeepsChanging
}

// Owner implements simba.Backend.
func (b *Backend) Owner(ctx context.Context, mutex string) (t simba.Tenure, _ simba.Seq, err error) {
	m, s, err := b.inspect(ctx, mutex)
	if err != nil || !s.live {
		return t, 0, err
	}
	b.mu.Lock()
	waiters, session := len(m.entries), uint64(0)
	if bound := b.sessions[mutex]; bound.contender == s.owner && bound.token == s.token {
		session = bound.session
	}
	b.mu.Unlock()
	return simba.Tenure{
		Owner: s.owner, Token: s.token,
		AcquiredAt: s.acquiredAt, TTLAt: s.ttlAt, TransitionAt: s.transitionAt, Now: s.now,
		TTL: s.ttlLeft(), Transition: s.left(), Waiters: waiters, Session: session,
	}, 0, nil
}

// Check implements simba.Backend.
func (b *Backend) Check(ctx context.Context, mutex string, token uint64) (bool, simba.Seq, error) {
	_, s, err := b.inspect(ctx, mutex)
	return err == nil && s.live && s.token == token, 0, err
}

// inspect reads a mutex for a request that changes nothing.
func (b *Backend) inspect(ctx context.Context, mutex string) (*mutexState, row, error) {
	if err := b.checkNames(mutex, ""); err != nil {
		return nil, row{}, err
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, row{}, err
	}
	defer done()
	m := b.ref(mutex)
	defer b.unref(m)
	s, err := b.read(ctx, mutex)
	if err == nil {
		b.noticeEnd(mutex, s)
	}
	return m, s, b.failAt(m, err)
}

// noticeEnd announces the end of the last known tenure, if the row shows the end.
func (b *Backend) noticeEnd(mutex string, s row) {
	e, ok := b.eventLog.Last(mutex)
	if ok && e.Kind == simba.EventAcquired && e.Token == s.token && e.Owner == s.owner && !s.live {
		b.announceChange(mutex, row{owner: e.Owner, token: e.Token, live: true}, s)
	}
}
