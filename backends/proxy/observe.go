package proxy

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// observe records a state that was read. It compares the state with the one that was read before,
// and announces the changes. The caller holds m.lock.
func (e *Engine) observe(m *mutexState, s State, sent time.Time) {
	e.mu.Lock()
	before, known := m.seen, m.known
	e.noteLocked(m, s, sent)
	if b := e.sessions[m.mutex]; b.Token != 0 && (!s.Live || s.Token != b.Token) {
		delete(e.sessions, m.mutex)
	}
	e.mu.Unlock()
	if known {
		e.announceChange(m, before, s, "")
	}
	e.noteOffer(m, before, s)
}

// noteLocked records the state that a step has read or written. If another state was recorded after
// the step was sent, either may be the newer one. Then a refresh follows soon, as it does while
// there are orphans.
func (e *Engine) noteLocked(m *mutexState, s State, sent time.Time) {
	delay := e.refreshDelay(s)
	if m.seenAt.After(sent) || len(m.orphans) > 0 {
		delay = min(delay, retryPause)
	}
	m.seenAt, m.known = time.Now(), true
	e.SawToken(s.Token)
	m.seen, m.seen.readAt = s, m.seenAt
	if s.Owner != "" {
		m.lastOwner, m.freedBy = s.Owner, ""
	}
	if s.Live {
		m.reserved = nil
	}
	// What only looks at a free mutex must not put off the refresh that grants it to a waiter.
	if due := m.seenAt.Add(delay); s.Live || due.Before(m.refreshAt) || !m.refreshAt.After(m.seenAt) {
		m.refreshAt = due
	}
}

// noteRenewal records a renewed lease. If this server does not know the tenure, a refresh follows.
func (e *Engine) noteRenewal(m *mutexState, l *Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.seen.Live && m.seen.Token == l.Token {
		s := l.state()
		s.Revision = m.seen.Revision // a renewal need not return it
		e.noteLocked(m, s, l.Since)
	} else {
		m.stale = true
	}
}

// announcedLocked returns the last announced tenure of a mutex, if this server has not announced its
// end.
func (e *Engine) announcedLocked(mutex string) (s State, ok bool) {
	event, ok := e.Events.Last(mutex)
	if !ok || event.Kind != simba.EventAcquired {
		return s, false
	}
	return State{Owner: event.Owner, Token: event.Token, Revision: e.begun[mutex], Live: true}, true
}

// announceChange announces what happened between two states of a mutex. It reports whether the
// beginning of the tenure in now is news.
func (e *Engine) announceChange(m *mutexState, before, now State, reason string) (begun bool) {
	same := before.Owner == now.Owner && before.Token == now.Token
	if before.Live && before.Owner != "" && !(same && now.Live) {
		kind := simba.EventExpired
		if e.wasReleased(before, now) {
			kind = simba.EventReleased
		}
		e.announce(m, kind, before, "")
	}
	if !same && now.Owner != "" {
		begun = e.announce(m, simba.EventAcquired, now, reason)
		if !now.Live {
			e.announce(m, simba.EventExpired, now, "")
		}
	}
	return begun
}

// inexact is by how much another server's lease may end earlier than this server of a Queue computes.
const inexact = 50 * time.Millisecond

// wasReleased reports whether the tenure before, which this server did not see end, was released.
// Otherwise its lease has expired.
func (e *Engine) wasReleased(before, now State) bool {
	if e.queue != nil {
		return before.readAt.IsZero() || time.Since(before.readAt)+inexact < before.left()
	}
	same := before.Owner == now.Owner && before.Token == now.Token
	return !same && (now.Owner == "" || now.Revision != before.Revision+1)
}

// announce announces the beginning or the end of a tenure. It reports whether that is news.
func (e *Engine) announce(m *mutexState, kind simba.EventKind, s State, reason string) bool {
	if e.Events.Record(simba.Event{Kind: kind, Mutex: m.mutex, Owner: s.Owner, Token: s.Token, Reason: reason}) == 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch kind {
	case simba.EventAcquired:
		e.begun[m.mutex], m.freedBy = s.Revision, ""
	case simba.EventExpired:
		e.Counts.Expired.Add(1)
	default:
		m.freedBy = s.Owner
	}
	return true
}

// announceFree publishes that a mutex was released, once for each release. The caller holds m.lock,
// and has found neither an owner nor a next waiter.
func (e *Engine) announceFree(m *mutexState) {
	e.mu.Lock()
	owner := m.freedBy
	m.freedBy = ""
	e.mu.Unlock()
	if owner != "" {
		e.Notices.Publish(simba.MutexChannel(m.mutex), simba.ReleasedNotice(owner))
	}
}

// recordBegin records and announces a tenure that this server granted. First it announces the end
// of the tenure before. The caller holds m.lock.
func (e *Engine) recordBegin(m *mutexState, l *Lease, reason string) {
	e.mu.Lock()
	before := m.seen
	e.noteLocked(m, l.state(), l.Since)
	e.mu.Unlock()
	if e.announceChange(m, before, l.state(), reason) || l.Elsewhere { // then a refresh may have announced it
		e.Count(simba.Event{Kind: simba.EventAcquired, Reason: reason})
	}
}

// recordEnd records and announces the end of a tenure that this server ended. The caller holds
// m.lock.
func (e *Engine) recordEnd(m *mutexState, was From, revision uint64, kind simba.EventKind, reason string) {
	if e.announce(m, kind, State{Owner: was.Owner, Token: was.Token}, reason) {
		e.Count(simba.Event{Kind: kind})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noteLocked(m, State{Revision: revision}, time.Now())
	m.lastOwner, m.reserved = was.Owner, nil
	delete(e.sessions, m.mutex)
}
