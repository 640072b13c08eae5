package redis

import (
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Looks: what a server does for a mutex by itself.

const (
	// patience is how long a mutex that someone here waits for goes without a look.
	patience = 10 * time.Second
	// maxAssert is how many waiters of a mutex are made sure of in one look.
	maxAssert = 64
)

// wakeup is what a release by Simba up to 3.1 has published: it wakes one contender.
type wakeup struct{ contender, releaser string }

// maxWakeups is how many of them a look takes in; there are more only if looks are late.
const maxWakeups = 16

// attendSoon looks after a mutex whose time has come.
func (b *Backend) attendSoon(mutex string) {
	b.mu.Lock()
	_, busy := b.attending[mutex]
	b.attending[mutex] = busy
	b.mu.Unlock()
	if busy { // one at a time, or an outage piles them up
		return
	}
	b.background(mutex, func(ctx context.Context) {
		b.attend(ctx, mutex)
		b.mu.Lock()
		again := b.attending[mutex]
		delete(b.attending, mutex)
		b.mu.Unlock()
		if again {
			b.agenda.advance(mutex, time.Now())
		}
	})
}

// attend looks after a mutex: ends waits that Redis has yet to hear of, makes sure
// that who waits here has a place, and lets the mutex be handed on if it is free.
func (b *Backend) attend(ctx context.Context, mutex string) {
	if err := b.exorcise(ctx, mutex); err != nil {
		b.retry(mutex, err)
		return
	}
	waiting := b.waiters.Waiting(mutex)
	waiting = waiting[:min(len(waiting), maxAssert)]
	if len(waiting) > 0 && !b.tuner.hears(mutex) {
		waiting = nil // grants could not reach them; their turn is when it hears again
	}
	s, err := b.assert(ctx, mutex, "", waiting)
	if err != nil {
		b.retry(mutex, err)
		return
	}
	if err := b.notListening(mutex); err != nil {
		b.waiters.Fail(mutex, err)
	}
	waiters, _ := s.extra.(int64)
	switch {
	case b.waiters.Count(mutex) > 0:
		at := time.Now().Add(patience)
		if due := s.dueAt(); s.due != 0 && due.Before(at) {
			at = due
		}
		b.agenda.advance(mutex, at)
	case s.due != 0 && (waiters > 0 || b.tuner.interested(mutex)):
		b.agenda.set(mutex, s.dueAt(), s.now)
	}
}

// assert looks at a mutex and gives tickets a place that have none.
func (b *Backend) assert(ctx context.Context, mutex, again string, waiting []*proxy.Ticket) (*state, error) {
	args := make([]any, 0, 3+6*len(waiting))
	var busy []*place
	b.mu.Lock()
	addressed := b.addressed[mutex]
	args = append(args, "1", again, len(addressed))
	for _, w := range addressed {
		args = append(args, w.contender, w.releaser)
	}
	delete(b.addressed, mutex)
	for _, t := range waiting {
		r, p := t.Request, placeOf(t)
		if p.score == "" || p.ended {
			continue // its first request is under way
		}
		p.asserting++
		busy = append(busy, p)
		args = append(args, r.Contender, p.score, r.TTL.Milliseconds(), r.Transition.Milliseconds(),
			b.session(r.Session), p.ticket)
	}
	b.mu.Unlock()
	s, err := b.ask(ctx, mutex, lookScript, args...)
	b.mu.Lock()
	for _, p := range busy {
		p.asserting--
		if p.asserting == 0 && p.idle != nil {
			close(p.idle)
			p.idle = nil
		}
	}
	if err != nil {
		b.addressLocked(mutex, addressed) // for the next look
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// addressLocked puts earlier wake-ups of a mutex before those that the next look takes in.
func (b *Backend) addressLocked(mutex string, earlier []wakeup) {
	if all := slices.Concat(earlier, b.addressed[mutex]); len(all) > 0 {
		b.addressed[mutex] = all[max(0, len(all)-maxWakeups):]
	}
}

// exorcise ends the waits of a mutex' ghosts. On an error some are left.
func (b *Backend) exorcise(ctx context.Context, mutex string) error {
	b.mu.Lock()
	list := b.ghosts[mutex]
	delete(b.ghosts, mutex)
	b.mu.Unlock()
	for i, g := range list {
		if time.Now().After(g.until) {
			continue
		}
		if _, err := b.ask(ctx, mutex, leaveScript, g.contender, g.ticket, "gone"); err != nil {
			b.mu.Lock()
			b.ghosts[mutex] = append(b.ghosts[mutex], list[i:]...)
			b.mu.Unlock()
			return err
		}
	}
	return nil
}
