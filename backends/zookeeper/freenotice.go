package zookeeper

import "github.com/simba-resp/simba-resp"

// announceFree tells all who listen that a mutex is free and nobody is next, once for each tenure. At the
// end of a lease nobody is told: contenders know that instant. They do not if the lease was lost with a session before, or,
// with turn, if the mutex was kept for a waiter since.
func (b *Backend) announceFree(mutex string, reserved bool) {
	last, _ := b.eventLog.Last(mutex)
	switch last.Kind {
	case simba.EventReleased, simba.EventBroken:
	case simba.EventExpired:
		if !reserved && last.Reason != reasonSessionLost {
			return
		}
	default:
		return
	}
	b.mu.Lock()
	m := b.mutexes[mutex]
	announced := m == nil || m.announced >= last.Token
	if !announced {
		m.announced = last.Token
	}
	b.mu.Unlock()
	if !announced {
		b.notices.Publish(simba.MutexChannel(mutex), simba.ReleasedNotice(last.Owner))
	}
}

// skipFree has announceFree tell nothing of the tenures so far.
func (b *Backend) skipFreeNotice(mutex string) {
	last, _ := b.eventLog.Last(mutex)
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.mutexes[mutex]; m != nil {
		m.announced = max(m.announced, last.Token)
	}
}
