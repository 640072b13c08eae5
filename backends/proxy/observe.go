package proxy

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// observe records a state that was read. It compares the state with the one that was read before,
// and announces the changes. The caller holds m.lock.
func (e *Engine) observe(m *mutexState, s State) {
	before, known := m.seen, m.known
	m.seen, m.seenAt, m.known = s, time.Now(), true
	e.mu.Lock()
	if s.Owner != "" {
		m.lastOwner = s.Owner
	}
	m.leaseEnd = time.Time{}
	if s.Live {
		m.leaseEnd = time.Now().Add(s.left())
		m.reserved, m.freedBy = nil, ""
	}
	if b := e.sessions[m.mutex]; b.Token != 0 && (!s.Live || s.Token != b.Token) {
		delete(e.sessions, m.mutex)
	}
	m.refreshAt = time.Now().Add(e.refreshDelay(s))
	e.mu.Unlock()
	if !known {
		// The state may show the end of a tenure that this server announced.
		var announced bool
		if before, announced = e.announced(m.mutex); !announced {
			return
		}
	}
	if freed := e.announceChange(m.mutex, before, s); freed != "" {
		e.mu.Lock()
		m.freedBy = freed
		e.mu.Unlock()
	}
}

// announced returns the last announced tenure of a mutex, if this server has not announced its end.
func (e *Engine) announced(mutex string) (s State, ok bool) {
	event, ok := e.eventLog.Last(mutex)
	if !ok || event.Kind != simba.EventAcquired {
		return s, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return State{Owner: event.Owner, Token: event.Token, Revision: e.begun[mutex], Live: true}, true
}

// noteEnd announces the end of the last announced tenure, if the state shows the end.
func (e *Engine) noteEnd(mutex string, s State) {
	if was, ok := e.announced(mutex); ok && was.Token == s.Token && was.Owner == s.Owner && !s.Live {
		e.announceChange(mutex, was, s)
	}
}

// announceChange announces what happened between two reads of a mutex. If it announces a release
// and the mutex is still free, it returns the owner that released it.
func (e *Engine) announceChange(mutex string, before, now State) (freed string) {
	same := before.Owner == now.Owner && before.Token == now.Token
	if before.Live && !(same && now.Live) {
		kind := simba.EventExpired
		if !same && (now.Owner == "" || now.Revision != before.Revision+1) {
			kind = simba.EventReleased
		}
		fresh := e.announceEnd(kind, mutex, before)
		if fresh && kind == simba.EventReleased && now.Owner == "" {
			freed = before.Owner
		}
	}
	if !same && now.Owner != "" {
		e.announceBegin(mutex, now, "")
		if !now.Live {
			e.announceEnd(simba.EventExpired, mutex, now)
		}
	}
	return freed
}

// announceBegin announces the beginning of a tenure. It reports whether that is news.
func (e *Engine) announceBegin(mutex string, s State, reason string) bool {
	fresh := e.eventLog.Record(simba.Event{Kind: simba.EventAcquired, Mutex: mutex, Owner: s.Owner, Token: s.Token, Reason: reason}) > 0
	if fresh {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.begun[mutex] = s.Revision
	}
	return fresh
}

// announceEnd announces the end of a tenure that this server has noticed.
func (e *Engine) announceEnd(kind simba.EventKind, mutex string, s State) bool {
	fresh := e.eventLog.Record(simba.Event{Kind: kind, Mutex: mutex, Owner: s.Owner, Token: s.Token}) > 0
	if fresh && kind == simba.EventExpired {
		e.counts.expired.Add(1)
	}
	return fresh
}

// announceFree publishes that a mutex was released, once for each release. The caller holds m.lock,
// and has found neither an owner nor a next waiter.
func (e *Engine) announceFree(m *mutexState) {
	e.mu.Lock()
	owner := m.freedBy
	m.freedBy = ""
	e.mu.Unlock()
	if owner != "" {
		e.notices.Publish(simba.MutexChannel(m.mutex), simba.ReleasedNotice(owner))
	}
}

// recordBegin records and announces a tenure that this server granted. First it announces the end
// of the last announced tenure. The caller holds m.lock.
func (e *Engine) recordBegin(m *mutexState, l *Lease, reason string) {
	if was, ok := e.announced(m.mutex); ok && was.Token < l.Token {
		kind := simba.EventReleased
		if m.known && m.seen.Token == was.Token {
			was.Revision = m.seen.Revision // contenders on the JVM change it when they renew
		}
		if was.Revision+1 == l.Revision {
			kind = simba.EventExpired
		}
		e.announceEnd(kind, m.mutex, was)
	}
	if e.announceBegin(m.mutex, l.state(), reason) {
		e.counts.acquired.Add(1)
	}
	e.noteLease(m, l)
}

// noteLease records a lease that this server granted or renewed. The caller holds m.lock.
func (e *Engine) noteLease(m *mutexState, l *Lease) {
	s := l.state()
	if m.known && m.seen.Token == l.Token {
		s.Revision = m.seen.Revision // a renewal need not return it
	}
	m.seen, m.seenAt = s, time.Now() // observe uses it only if m.known is true
	_, left := l.left()
	e.mu.Lock()
	defer e.mu.Unlock()
	m.lastOwner, m.leaseEnd, m.reserved, m.freedBy = l.Owner, time.Now().Add(left), nil, ""
	m.refreshAt = time.Now().Add(e.refreshDelay(s))
}

// recordEnd records and announces the end of a tenure that this server ended. The caller holds
// m.lock.
func (e *Engine) recordEnd(m *mutexState, was From, revision uint64, kind simba.EventKind, reason string) {
	fresh := e.eventLog.Record(simba.Event{Kind: kind, Mutex: m.mutex, Owner: was.Owner, Token: was.Token, Reason: reason}) > 0
	if fresh && kind == simba.EventBroken {
		e.counts.broken.Add(1)
	} else if fresh {
		e.counts.released.Add(1)
	}
	m.seen = State{Revision: revision}
	e.mu.Lock()
	defer e.mu.Unlock()
	m.lastOwner, m.leaseEnd, m.reserved, m.refreshAt = was.Owner, time.Time{}, nil, time.Time{}
	if fresh {
		m.freedBy = was.Owner
	}
	delete(e.sessions, m.mutex)
}
