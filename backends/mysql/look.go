package mysql

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	// lookTimeout bounds a look that nobody waits for, so that the next one comes
	// soon after an outage.
	lookTimeout = 2 * time.Second
	// The pauses after looks that failed.
	firstRetry = 250 * time.Millisecond
	lastRetry  = time.Second
	// haste is the pause while there is a lease that nobody may know of.
	haste = 250 * time.Millisecond
)

// pause is when to look again after a row: at the contention timing of Simba's JDBC
// contenders, from 200 ms before the end of the lease to 1 s after it. The spread
// keeps servers from asking all at once; the early ones find the old owner, and its
// lease ends a little later. (Simba, "Contention Mechanics".)
func (b *Backend) pause(r row) time.Duration {
	d := time.Duration(0)
	if r.live {
		d = r.left()
	}
	if r.live && r.transitionAt > r.ttlAt {
		d += rand.N(1200*time.Millisecond) - 200*time.Millisecond
	} else {
		d += rand.N(time.Second)
	}
	if b.poll > 0 {
		d = min(d, b.poll)
	}
	return max(0, d)
}

// dueLocked is when something has to be done about a line by itself; zero = never.
func (b *Backend) dueLocked(l *line) (due time.Time) {
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	watched := l.followed || len(l.ghosts) > 0 || b.waiters.Count(l.mutex) > 0
	for _, e := range b.pollingLocked(l) {
		if e != l.reserved {
			sooner(e.lapse)
		}
		watched = watched || b.notices.Subscribed(simba.ContenderChannel(l.mutex, e.contender))
	}
	if l.reserved != nil {
		sooner(l.until)
	}
	if watched {
		if l.lookAt.IsZero() {
			l.lookAt = time.Now().Add(b.pause(row{}))
		}
		sooner(l.lookAt)
	}
	return due
}

// armLocked sets the line's timer.
func (b *Backend) armLocked(l *line) {
	if l.awake {
		return
	}
	due := b.dueLocked(l)
	if b.closed || due.IsZero() {
		l.disarm()
		return
	}
	d := max(0, time.Until(due))
	if l.timer == nil {
		l.timer = time.AfterFunc(d, func() { b.wakeUp(l) })
		return
	}
	l.timer.Reset(d)
}

func (l *line) disarm() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// wakeUp does what is due of a line. It is the timer's goroutine.
func (b *Backend) wakeUp(l *line) {
	b.mu.Lock()
	if b.closed || l.awake || b.lines[l.mutex] != l {
		b.mu.Unlock()
		return
	}
	b.running.Add(1)
	l.refs++
	l.awake = true
	now := time.Now()
	turnOver := l.reserved != nil && !now.Before(l.until)
	look := turnOver || !l.lookAt.IsZero() && !now.Before(l.lookAt)
	b.mu.Unlock()
	defer b.running.Done()
	defer b.drop(l)
	defer b.sleep(l)
	b.lapse(l)
	if !look {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, min(b.timeout, lookTimeout))
	defer cancel()
	if err := b.lookByItself(ctx, l); err != nil && b.ctx.Err() == nil {
		err = b.fail(err) // for its effect on the pool, too
		if refusal := (*simba.MisconfiguredError)(nil); errors.As(err, &refusal) {
			b.waiters.Fail(l.mutex, refusal)
		}
		b.log.Debug("cannot look at a mutex", "mutex", l.mutex, "err", err)
		b.mu.Lock()
		if isConflict(err) || errors.Is(err, errBusy) {
			l.lookAt = time.Now().Add(firstRetry) // the database answers, or was not asked
		} else {
			l.fails++
			l.lookAt = time.Now().Add(min(lastRetry, firstRetry<<min(l.fails, 8)))
		}
		b.mu.Unlock()
	}
}

// lookByItself is a visit that nobody asked for. It waits for its turn among looks first,
// where it holds up no request for the mutex. One whose row is locked, or whose gate is
// busy for long, is put off: other mutexes want the connections that looks have.
func (b *Backend) lookByItself(ctx context.Context, l *line) error {
	if b.store.waits.isLocked(l.mutex) {
		return errLocked
	}
	select {
	case b.looking <- struct{}{}:
		defer func() { <-b.looking }()
	case <-ctx.Done():
		return errBusy
	}
	short, cancel := context.WithTimeout(ctx, gatePatience)
	defer cancel()
	if err := l.gate.enter(short, false); err != nil {
		return err
	}
	defer l.gate.leave()
	return b.visitInGate(brief(ctx), l)
}

// sleep lets the timer be set again.
func (b *Backend) sleep(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.awake = false
}

// hurry has the mutex looked at at once.
func (b *Backend) hurry(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.lookAt = time.Now()
}

// visit looks at a mutex and passes it on if it is free.
func (b *Backend) visit(ctx context.Context, l *line) error {
	if err := l.gate.enter(ctx, false); err != nil {
		return err
	}
	defer l.gate.leave()
	return b.visitInGate(ctx, l)
}

func (b *Backend) visitInGate(ctx context.Context, l *line) error {
	s, err := b.look(ctx, l, b.blocked(l))
	if err != nil {
		return err
	}
	return b.offer(ctx, l, s)
}

func (b *Backend) blocked(l *line) bool { return b.waiters.Count(l.mutex) > 0 }

// look reads a mutex, tells what has changed and decides about ghosts. With create, the
// row is there afterwards. It is called in the gate.
func (b *Backend) look(ctx context.Context, l *line, create bool) (row, error) {
	read := b.store.read
	if create {
		read = b.store.readOrMake
	}
	haunted := b.haunted(l)
	sent := time.Now()
	s, err := b.readBy(ctx, l.mutex, haunted, read)
	if err != nil {
		return s, err
	}
	b.observe(l, s)
	if !haunted {
		b.wakeOwner(l, s, sent)
		return s, nil
	}
	changed, err := b.settle(ctx, l, s)
	if err == nil && changed {
		sent = time.Now()
		s, err = b.readBy(ctx, l.mutex, false, read)
	}
	if err == nil {
		b.wakeOwner(l, s, sent)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if soon := time.Now().Add(haste); len(l.ghosts) > 0 && soon.Before(l.lookAt) {
		l.lookAt = soon
	}
	return s, err
}

// wakeOwner wakes a waiter that has acquired the mutex otherwise, as a row shows that was asked for at sent.
func (b *Backend) wakeOwner(l *line, s row, sent time.Time) {
	if s.live {
		b.wakeBlocked(l, lease{owner: s.owner, token: s.token, ttl: s.ttlLeft(), transition: s.left() - s.ttlLeft(), since: sent})
	}
}

// offer passes a mutex on that a look has shown to be free, or announces it if nobody is next. It is
// called in the gate.
func (b *Backend) offer(ctx context.Context, l *line, s row) error {
	for range attempts {
		if s.live || b.kept(l) > 0 {
			return nil
		}
		if e, _ := b.heir(l, holder{version: s.version}); e == nil {
			b.announceFree(l)
			return nil
		}
		held, _, err := b.passOn(ctx, l, passage{from: holder{version: s.version}})
		if err != nil || held || b.kept(l) > 0 {
			return err
		}
		if s, err = b.look(ctx, l, b.blocked(l)); err != nil {
			return err
		}
	}
	return errRestless
}
