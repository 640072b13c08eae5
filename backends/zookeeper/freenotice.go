package zookeeper

import "github.com/simba-resp/simba-resp"

// announceFree publishes that a mutex is free and has no waiter, once for each tenure. reserved
// says that the mutex was reserved for a waiter after the tenure. Contenders know when a lease
// expires. So announceFree publishes nothing after an expiry, unless the lease ended with its
// session or reserved is true.
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

// skipFreeNotice prevents announceFree for the tenures so far.
func (b *Backend) skipFreeNotice(mutex string) {
	last, _ := b.eventLog.Last(mutex)
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.mutexes[mutex]; m != nil {
		m.announced = max(m.announced, last.Token)
	}
}
