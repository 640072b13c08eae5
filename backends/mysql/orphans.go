package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// lossTime is for how long after its fence a statement can still take effect, in ms:
// it has begun before, and waits for a row. The database looks once a second
// whether such a wait has been too long.
const lateEffectLimit = int64(2*lockWait/time.Millisecond) + 500

// haunt remembers a change that nobody may know of.
func (b *Backend) addOrphan(m *mutexState, o orphan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.orphans = append(m.orphans, o)
	m.refreshAt = time.Now()
}

// haunted reports whether there are ghosts.
func (b *Backend) hasOrphans(m *mutexState) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(m.orphans) > 0
}

// settle decides about ghosts by the row, which was read with a lock: a lease that is
// there gets its waiter told, or is passed on if that is gone. It is called in the gate
// and reports whether it changed the row.
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
				b.counts.handedOn.Add(1)
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

// exorcise forgets the ghosts of a contender that was told of its lease.
func (b *Backend) dropOrphansOf(m *mutexState, contender string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.orphans = slices.DeleteFunc(m.orphans, func(o orphan) bool { return o.owner == contender })
}

// lay forgets one ghost.
func (b *Backend) dropOrphan(m *mutexState, owner string, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.orphans = slices.DeleteFunc(m.orphans, func(o orphan) bool { return o.owner == owner && o.at == at })
}

// ghost is a change that nobody knows of: its answer was lost, or nobody could be told.
// One that gives a waiter a lease is known by the owner and the start. One that gives a
// mutex free has no owner: it is waited for as long as it may come.
type orphan struct {
	owner    string
	at       int64
	deadline int64 // if it isn't there at this time of the database, it will never be
	lease    lease
}
