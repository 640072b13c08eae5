package redis

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// waiterStore makes a Backend the proxy.Store that its Waiters call.
type waiterStore struct{ *Backend }

// Granted implements proxy.Store.
func (b waiterStore) Granted(t *proxy.Ticket, g proxy.Grant) (simba.Outcome, error) {
	r := t.Request
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	if err := b.endEntry(ctx, t); err != nil {
		return simba.Outcome{}, err
	}
	passed := time.Since(g.Since)
	// Redis rounds the start of a lease down to a millisecond, so the last millisecond is in doubt.
	if !g.Confirm && g.Ticket == entryOf(t).ticket && wholeMillis(r.TTL+r.Transition-passed) > 0 {
		return simba.Outcome{
			Status: simba.StatusAcquired, Owner: r.Contender, Token: g.Token,
			TTL: wholeMillis(r.TTL - passed), Transition: wholeMillis(r.TTL + r.Transition - passed),
		}, nil
	}
	s, err := b.ask(ctx, r.Mutex, confirmScript, r.Contender, tokenText(g.Token), entryOf(t).ticket, "acknowledged")
	if err != nil {
		b.orphanTicket(t)
		return simba.Outcome{}, err
	}
	if s.status == "confirmed" { // that tenure, or a later one of this ticket
		return s.outcome(simba.StatusAcquired), nil
	}
	if s.position > 0 { // the contender waits at another server, or polls
		return s.outcome(simba.StatusQueued), nil
	}
	return s.outcome(simba.StatusTimeout), nil
}

// Reacquire implements proxy.Store.
func (b waiterStore) Reacquire(t *proxy.Ticket) (simba.Outcome, simba.Ticket, error) {
	r := t.Request
	r.Waiter = entryOf(t).Waiter
	return b.Acquire(context.Background(), r)
}

// Replaced implements proxy.Store.
func (b waiterStore) Replaced(t *proxy.Ticket) (simba.Outcome, error) {
	// A guard of a token that no tenure has changes nothing, and returns the position.
	s, err := b.runLast(t, guardScript, int64(1), int64(0), "-")
	if err != nil {
		return simba.Outcome{}, err
	}
	return s.outcome(simba.StatusQueued), nil
}

// Leave implements proxy.Store.
func (b waiterStore) Leave(t *proxy.Ticket, why simba.EndReason) (simba.Outcome, error) {
	reason := "left"
	switch why {
	case simba.EndTimeout:
		reason = "timeout"
	case simba.EndGone:
		reason = "gone"
	}
	s, err := b.runLast(t, leaveScript, entryOf(t).ticket, reason)
	if err != nil {
		return simba.Outcome{}, err
	}
	return s.result(), nil
}

// HandOff implements proxy.Store.
func (b waiterStore) HandOff(t *proxy.Ticket, g proxy.Grant) error {
	_, err := b.runLast(t, handOffScript, tokenText(g.Token), entryOf(t).ticket)
	return err
}

// runLast runs the script that ends a ticket. Its arguments begin with the contender. On an error
// the ticket becomes an orphan.
func (b waiterStore) runLast(t *proxy.Ticket, s *script, args ...any) (*reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	if err := b.endEntry(ctx, t); err != nil {
		return nil, err
	}
	st, err := b.ask(ctx, t.Request.Mutex, s, append([]any{t.Request.Contender}, args...)...)
	if err != nil {
		b.orphanTicket(t)
	}
	return st, err
}

// endEntry stops reconciliations from restoring the entry of a ticket in the queue. On an error the
// ticket becomes an orphan.
func (b waiterStore) endEntry(ctx context.Context, t *proxy.Ticket) error {
	err := b.stopRestoring(ctx, t)
	if err != nil {
		b.orphanTicket(t)
	}
	return err
}
