package mysql

import (
	"context"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	// sweepEvery is how often the backend drops what nobody needs any more.
	sweepEvery = 10 * time.Second
	// followEvery is how often the table is read as a whole while someone subscribes
	// to a pattern that can match the channels of mutexes.
	followEvery = time.Second
	// gatePatience is how long one mutex may hold up the reading of the table, and the
	// looks at others.
	gatePatience = 100 * time.Millisecond
)

// Subscribed implements simba.Backend. When it returns without error the mutex has been
// looked at, so every change from now on is told.
func (b *Backend) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	if pattern {
		return 0, b.subscribedPattern(ctx, channel)
	}
	mutex, isMutex := simba.ParseMutexChannel(channel)
	if !isMutex {
		mutex, isMutex = simba.ParseEventChannel(channel)
	}
	ofContender, contender, isContender := simba.ParseContenderChannel(channel)
	if isContender {
		mutex = ofContender
	}
	if !isMutex && !isContender || b.checkNames(mutex, contender) != nil {
		if b.ctx.Err() != nil {
			return 0, simba.ErrStopped
		}
		return 0, nil // nothing of ours will ever be told there
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	l := b.hold(mutex)
	defer b.drop(l)
	if isContender && !b.reach(l, contender) {
		return 0, nil
	}
	if isMutex {
		b.mu.Lock()
		l.followed = true
		b.mu.Unlock()
	}
	err = b.visit(ctx, l)
	if err != nil {
		b.hurry(l)
	}
	return 0, b.failAt(l, err)
}

// reach takes note that a polling waiter can be told now: what it was told before may
// have gone to a subscription that is no more. It reports false if it does not wait.
func (b *Backend) reach(l *line, contender string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := l.index[contender]
	if e == nil {
		return false
	}
	e.toldAt = 0
	if l.reserved == e {
		l.reserved = nil
	}
	return true
}

// subscribedPattern begins to follow the table as a whole.
func (b *Backend) subscribedPattern(ctx context.Context, pattern string) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !concerns(pattern) {
		return nil
	}
	b.mu.Lock()
	b.patterns[pattern] = struct{}{}
	b.mu.Unlock()
	return b.fail(b.followTable(ctx))
}

// concerns reports whether a glob may match a channel of a mutex.
func concerns(pattern string) bool {
	literal := pattern
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		literal = pattern[:i]
	}
	for _, prefix := range []string{simba.MutexChannel(""), simba.EventChannel("")} {
		prefix = strings.TrimSuffix(prefix, "}")
		if strings.HasPrefix(prefix, literal) || strings.HasPrefix(literal, prefix) {
			return true
		}
	}
	return false
}

// keep runs until the backend is closed. It follows the table while there are
// patterns, drops what nobody needs, and keeps the reading of the database's clock
// fresh.
func (b *Backend) keep() {
	defer b.running.Done()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	follow := time.NewTicker(followEvery)
	defer follow.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-sweep.C:
			b.sweep()
		case <-follow.C:
			b.follow()
		}
	}
}

// sweep drops what nobody needs any more.
func (b *Backend) sweep() {
	var rest []*line
	b.mu.Lock()
	for pattern := range b.patterns {
		if !b.notices.SubscribedPattern(pattern) {
			delete(b.patterns, pattern)
		}
	}
	for mutex, l := range b.lines {
		if l.followed && !b.notices.Subscribed(simba.MutexChannel(mutex)) && !b.notices.Subscribed(simba.EventChannel(mutex)) {
			l.followed = false
			l.refs++
			rest = append(rest, l)
		}
	}
	b.mu.Unlock()
	for _, l := range rest {
		b.drop(l)
	}
	ctx, cancel := context.WithTimeout(b.ctx, b.timeout)
	defer cancel()
	err := b.store.readClock(ctx)
	if refusal := b.checkForBlocked(ctx); err == nil {
		err = refusal
	}
	if err == nil {
		err = b.sweepSessions(ctx)
	}
	if err != nil && b.ctx.Err() == nil {
		_ = b.fail(err) // for its effect on the pool
		b.log.Warn("cannot ask the database", "err", err)
	}
}

// checkForBlocked ends all waits by an error if the database refuses what each of them
// needs in the end. Otherwise they would learn it when their leases in front end.
func (b *Backend) checkForBlocked(ctx context.Context) error {
	mutexes := b.waiters.Mutexes()
	if len(mutexes) == 0 {
		return nil
	}
	err := b.store.tryUpdate(ctx)
	if f := b.at.fault(err); f != nil {
		for _, mutex := range mutexes {
			b.waiters.Fail(mutex, &simba.MisconfiguredError{Engine: "mysql", Err: f})
		}
	}
	return err
}

// follow looks at the table as a whole if anyone wants to know of all mutexes.
func (b *Backend) follow() {
	b.mu.Lock()
	wanted := len(b.patterns) > 0
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(b.ctx, b.timeout)
	defer cancel()
	if !wanted {
		if b.following.enter(ctx, false) == nil {
			b.held = nil
			b.following.leave()
		}
		return
	}
	if err := b.followTable(ctx); err != nil && b.ctx.Err() == nil {
		_ = b.fail(err) // for its effect on the pool
		b.log.Debug("cannot follow the table", "err", err)
	}
}

// followTable tells what has happened in the table since it was seen last; the first
// time, what is there already is no news. A tenure that is shorter than the pause and
// is not of this server's making goes unnoticed.
func (b *Backend) followTable(ctx context.Context) error {
	if err := b.following.enter(ctx, false); err != nil {
		return err
	}
	defer b.following.leave()
	now, err := b.store.readHeld(ctx)
	if err != nil {
		return err
	}
	before := b.held
	b.held = now
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
				now[mutex] = was // its turn comes the next time
				continue
			}
		}
		if is, told := b.tellAlone(ctx, mutex, was, is); !told {
			now[mutex] = was
		} else if held {
			now[mutex] = is
		}
	}
	for mutex, is := range now {
		if _, known := before[mutex]; !known {
			is, told := b.tellAlone(ctx, mutex, row{}, is)
			now[mutex] = is
			if !told {
				delete(now, mutex)
			}
		}
	}
	return nil
}

// tellAlone is tellChange in the gate: a request of this server that is under way may
// know more of the same change, and tells it first. It reports false if that takes long,
// as while the row is locked: the change is told the next time. It returns the row that it told.
func (b *Backend) tellAlone(ctx context.Context, mutex string, was, is row) (row, bool) {
	if b.store.waits.isLocked(mutex) {
		return is, false
	}
	l := b.hold(mutex)
	defer b.drop(l)
	ctx, cancel := context.WithTimeout(ctx, gatePatience)
	defer cancel()
	if l.gate.enter(ctx, false) != nil {
		return is, false
	}
	defer l.gate.leave()
	if !b.hasToken(mutex, is, 0) {
		var err error
		if is, err = b.read(brief(ctx), mutex); err != nil {
			return is, false
		}
	}
	b.freed(l, b.tellChange(mutex, was, is))
	if is.live || b.kept(l) > 0 {
		return is, true
	}
	if e, _ := b.heir(l, holder{version: is.version}); e == nil {
		b.announceFree(l)
	}
	return is, true
}
