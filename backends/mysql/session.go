package mysql

import (
	"context"
	"time"
)

// binding ties a lease to a connection of this server, for SESSION. If the outcome of the grant is
// unknown, token is 0, and at identifies the lease.
type binding struct {
	session   uint64
	contender string
	token     uint64
	at        int64     // acquired_at of the lease
	end       time.Time // of the lease, as far as this server knows
}

// bind binds the lease of a mutex to a session. Session 0 removes the binding.
func (b *Backend) bind(mutex string, session uint64, t lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bindLocked(mutex, session, t)
}

func (b *Backend) bindLocked(mutex string, session uint64, t lease) {
	if session == 0 {
		delete(b.sessions, mutex)
		return
	}
	b.sessions[mutex] = binding{session, t.owner, t.token, t.at, t.since.Add(t.ttl + t.transition)}
}

func (b *Backend) extend(mutex string, t lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.sessions[mutex]; ok && s.token == t.token {
		s.end = t.since.Add(t.ttl + t.transition)
		b.sessions[mutex] = s
	}
}

func (b *Backend) boundTo(mutex string, session uint64) (binding, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.sessions[mutex]
	return s, ok && s.session == session
}

func (b *Backend) cleanUpSessions(ctx context.Context) error {
	b.mu.Lock()
	var over []string
	for mutex, s := range b.sessions {
		if time.Now().After(s.end) {
			over = append(over, mutex)
		}
	}
	b.mu.Unlock()
	for _, mutex := range over {
		r, err := b.store.read(ctx, mutex, false)
		if err != nil {
			return err
		}
		b.mu.Lock()
		if s, ok := b.sessions[mutex]; ok && time.Now().After(s.end) {
			if r.live && r.owner == s.contender && (s.token == r.token || s.token == 0) {
				s.end = time.Now().Add(r.left()) // renewed through another server
				b.sessions[mutex] = s
			} else {
				delete(b.sessions, mutex)
			}
		}
		b.mu.Unlock()
	}
	return nil
}
