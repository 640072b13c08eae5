package redis

import (
	"cmp"
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// waitEnder is the proxy.WaitEnder of Backend.Waiters.
type waitEnder struct{ *Backend }

// Granted implements proxy.WaitEnder.
func (b waitEnder) Granted(t *proxy.Ticket, g proxy.Grant) (simba.Outcome, error) {
	r := t.Request
	b.stopRestoring(t)
	passed := time.Since(g.Since)
	// Redis rounds the start of a lease down to a millisecond, so the last millisecond is in doubt.
	if !g.Confirm && g.Ticket == waitOf(t).ticket && wholeMillis(r.TTL+r.Transition-passed) > 0 {
		return simba.Outcome{
			Status: simba.StatusAcquired, Owner: r.Contender, Token: g.Token,
			TTL: wholeMillis(r.TTL - passed), Transition: wholeMillis(r.TTL + r.Transition - passed),
		}, nil
	}
	s, err := b.runLast(t, confirmScript, tokenText(g.Token), waitOf(t).ticket, "acknowledged")
	if err != nil {
		return simba.Outcome{}, err
	}
	if s.status == "confirmed" { // the granted tenure, or a later one of the same ticket
		return s.outcome(simba.StatusAcquired), nil
	}
	if s.position > 0 { // the contender waits at another server, or polls
		return s.outcome(simba.StatusQueued), nil
	}
	return s.outcome(simba.StatusTimeout), nil
}

// Reacquire implements proxy.WaitEnder.
func (b waitEnder) Reacquire(t *proxy.Ticket) (simba.Outcome, simba.Ticket, error) {
	r := t.Request
	r.Waiter = waitOf(t).Waiter
	return b.Acquire(context.Background(), r)
}

// Replaced implements proxy.WaitEnder.
func (b waitEnder) Replaced(t *proxy.Ticket) (simba.Outcome, error) {
	// With the token '-', the guard script renews nothing and returns the position.
	s, err := b.runLast(t, guardScript, int64(1), int64(0), "-")
	if err != nil {
		return simba.Outcome{}, err
	}
	return s.outcome(simba.StatusQueued), nil
}

// Leave implements proxy.WaitEnder.
func (b waitEnder) Leave(t *proxy.Ticket, why simba.EndReason) (simba.Outcome, error) {
	reasons := map[simba.EndReason]string{simba.EndTimeout: "timeout", simba.EndGone: "gone"}
	s, err := b.runLast(t, leaveScript, waitOf(t).ticket, cmp.Or(reasons[why], "left"))
	if err != nil {
		return simba.Outcome{}, err
	}
	if why == simba.EndGone {
		b.schedule.bringForward(time.Now().Add(b.QueueGrace()+time.Millisecond), t.Request.Mutex)
	}
	return s.result(), nil
}

// HandOff implements proxy.WaitEnder.
func (b waitEnder) HandOff(t *proxy.Ticket, _ proxy.Grant) error {
	_, err := b.runLast(t, leaveScript, waitOf(t).ticket, "gone")
	return err
}

// runLast runs the script that ends a ticket. It passes the contender, then args, to the script. On
// an error the ticket becomes an orphan.
func (b waitEnder) runLast(t *proxy.Ticket, s *script, args ...any) (*reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	b.stopRestoring(t)
	st, err := b.ask(ctx, t.Request.Mutex, s, append([]any{t.Request.Contender}, args...)...)
	if err != nil {
		b.orphanTicket(t)
	}
	return st, err
}
