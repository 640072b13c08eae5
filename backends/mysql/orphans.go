package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// orphan is a change whose outcome is unknown, or a grant whose waiter is gone. A grant has taken
// effect if the row has the owner and the acquired_at of the orphan. An orphan that frees the mutex
// has no owner. The server keeps an orphan until it can no longer take effect.
type orphan struct {
	owner    string
	at       int64 // acquired_at of the grant
	deadline int64 // on the database's clock; after it, the change takes no effect
	lease    lease // of the grant; zero = its waiter is gone
}

// lateEffectLimit is how long after its deadline a statement can still take effect, in ms. Such a
// statement began before the deadline and waits for a row. The database checks once a second
// whether the wait has been too long.
const lateEffectLimit = int64(2*lockWait/time.Millisecond) + 500

// addOrphan records an orphan and schedules a refresh.
func (b *Backend) addOrphan(m *mutexState, o orphan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.orphans = append(m.orphans, o)
	m.refreshAt = time.Now()
}

func (b *Backend) hasOrphans(m *mutexState) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(m.orphans) > 0
}

// reconcile compares the orphans with the row, which was read with a lock. If the row has the lease
// of an orphan, reconcile wakes the waiter, or hands off the mutex if the waiter is gone. It
// reports whether it changed the row. The caller holds m.lock.
func (b *Backend) reconcile(ctx context.Context, m *mutexState, r row) (changed bool, err error) {
	b.mu.Lock()
	orphans := m.orphans
	m.orphans = nil
	b.mu.Unlock()
	var rest []orphan
	for _, o := range orphans {
		switch {
		case o.owner != "" && r.live && r.owner == o.owner && r.acquiredAt == o.at:
			granted := o.lease
			granted.owner, granted.token, granted.version, granted.at = r.owner, r.token, r.version, r.acquiredAt
			b.recordBegin(m, granted, reasonHandoff)
			if granted.ttl > 0 && b.wake(m, granted) {
				b.counts.handoffs.Add(1)
				continue
			}
			changed = true
			_, _, err = b.handOff(ctx, m, handoff{
				from: holder{owner: r.owner, token: r.token, at: r.acquiredAt}, kind: simba.EventReleased, reason: "waiter gone",
			})
			if err != nil {
				rest = append(rest, o)
			}
		case r.now < o.deadline:
			rest = append(rest, o)
		}
	}
	b.mu.Lock()
	m.orphans = append(m.orphans, rest...)
	b.mu.Unlock()
	return changed, err
}

// dropOrphansOf removes the orphans of a contender whose request is answered, with its lease or
// with an error.
func (b *Backend) dropOrphansOf(m *mutexState, contender string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.orphans = slices.DeleteFunc(m.orphans, func(o orphan) bool { return o.owner == contender })
}

func (b *Backend) dropOrphan(m *mutexState, owner string, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.orphans = slices.DeleteFunc(m.orphans, func(o orphan) bool { return o.owner == owner && o.at == at })
}
