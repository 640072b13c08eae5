package mysql

import (
	"context"
)

func (b *Backend) watchTable() {
	b.mu.Lock()
	wanted := len(b.patterns) > 0
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(b.ctx, b.timeout)
	defer cancel()
	if !wanted {
		if b.tableLock.lock(ctx, false) == nil {
			b.tableRows = nil
			b.tableLock.unlock()
		}
		return
	}
	if err := b.announceTableChanges(ctx); err != nil && b.ctx.Err() == nil {
		_ = b.fail(err) // fail may replace the pool's connections
		b.log.Debug("cannot watch the table", "err", err)
	}
}

// announceTableChanges announces the changes of the table since the last call. The first call
// announces nothing. A tenure of another server that begins and ends between two calls stays
// unnoticed.
func (b *Backend) announceTableChanges(ctx context.Context) error {
	if err := b.tableLock.lock(ctx, false); err != nil {
		return err
	}
	defer b.tableLock.unlock()
	now, err := b.store.readHeld(ctx)
	if err != nil {
		return err
	}
	before := b.tableRows
	b.tableRows = now
	if before == nil {
		return nil
	}
	for mutex, was := range before {
		is, held := now[mutex]
		if held && is.token == was.token && is.owner == was.owner {
			continue
		}
		if !held {
			if is, err = b.store.read(ctx, mutex, false); err != nil {
				now[mutex] = was // the next call tries again
				continue
			}
		}
		if is, announced := b.announceTableChange(ctx, mutex, was, is); !announced {
			now[mutex] = was
		} else if held {
			now[mutex] = is
		}
	}
	for mutex, is := range now {
		if _, known := before[mutex]; !known {
			is, announced := b.announceTableChange(ctx, mutex, row{}, is)
			now[mutex] = is
			if !announced {
				delete(now, mutex)
			}
		}
	}
	return nil
}

// announceTableChange announces one change, and returns the row that it announced. It takes m.lock,
// because a request of this server may be about to announce the same change with more detail. If
// m.lock is held for long, for example while the row is locked, it returns false. Then the next
// call of announceTableChanges tries again.
func (b *Backend) announceTableChange(ctx context.Context, mutex string, was, is row) (row, bool) {
	if b.store.waits.isLocked(mutex) {
		return is, false
	}
	m := b.ref(mutex)
	defer b.unref(m)
	ctx, cancel := context.WithTimeout(ctx, backgroundLockTimeout)
	defer cancel()
	if m.lock.lock(ctx, false) != nil {
		return is, false
	}
	defer m.lock.unlock()
	if !b.hasToken(mutex, is, 0) {
		var err error
		if is, err = b.read(withoutLockWait(ctx), mutex); err != nil {
			return is, false
		}
	}
	b.noteFreed(m, b.announceChange(mutex, was, is))
	if is.live || b.reservationLeft(m) > 0 {
		return is, true
	}
	if e, _ := b.nextWaiter(m, holder{version: is.version}); e == nil {
		b.announceFree(m)
	}
	return is, true
}
