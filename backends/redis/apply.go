package redis

import (
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// checkAfter is how long after a grant to another server's waiter this server reconciles the mutex:
// that server should have confirmed the grant by then.
const checkAfter = 100 * time.Millisecond

// applyReply handles the events and grants in a reply, and schedules the next reconciliation.
func (b *Backend) applyReply(mutex string, s *reply) {
	b.recordOwner(mutex, s)
	b.Events.Record(s.events...)
	b.Count(s.events...)
	if s.status == "renewed" {
		b.Counts.Renewed.Add(1)
	}
	b.SawToken(s.token)
	for _, g := range s.grants {
		if g.token == 0 {
			b.endWait(mutex, g.contender, g.ticket, proxy.Grant{Confirm: true, Ended: g.expired})
			continue
		}
		// A reply of reconcile.lua may report a grant of an earlier script. Then s.sent is not when
		// the lease began, so the waiter asks Redis to confirm the grant. If this server stood still,
		// the reply may be so late that forget has forgotten a ticket whose client has the tenure.
		earlier, isNew := s.status == "ok" || s.status == "full", time.Since(s.sent) < 2*b.timeout
		b.deliver(mutex, g, proxy.Grant{Token: g.token, Since: s.sent, Confirm: earlier}, isNew)
	}
	b.scheduleNext(mutex, s)
}

// scheduleNext schedules the next reconciliation of a mutex after a reply. Replies arrive in any
// order. If the mutex has waiters or chores here, a reply only brings the time forward.
// Backend.reconcile sets the next time after each reconciliation.
func (b *Backend) scheduleNext(mutex string, s *reply) {
	changed := len(s.grants) > 0
	switch s.status {
	case "busy", "lost", "full", "closed", "ok", "confirmed":
	default: // the reply began, renewed or ended a lease, or queued a contender
		changed = changed || s.due != 0
	}
	switch {
	case changed && b.needsReconciling(mutex):
		b.schedule.bringForward(s.reconcileAt(), mutex)
	case changed:
		b.schedule.set(mutex, s.reconcileAt(), s.now)
	case s.due == 0 && s.status == "released" && !b.needsReconciling(mutex):
		b.schedule.cancel(mutex, s.now)
	}
	if len(s.grants) == 0 && slices.ContainsFunc(s.events, isHandoff) {
		b.schedule.bringForward(time.Now().Add(checkAfter), mutex)
	}
}

func (b *Backend) needsReconciling(mutex string) bool {
	b.mu.Lock()
	hasChores := len(b.chores[mutex]) > 0
	b.mu.Unlock()
	return hasChores || b.Waiters.Count(mutex) > 0
}

func isHandoff(e simba.Event) bool { return e.Kind == simba.EventAcquired && e.Reason == "handoff" }

// recordOwner records that the tenure in a reply has begun, if neither the reply nor the event log
// has that event.
func (b *Backend) recordOwner(mutex string, s *reply) {
	if s.owner == "" || slices.ContainsFunc(s.events, func(e simba.Event) bool { return e.Token == s.token }) {
		return
	}
	e := simba.Event{At: s.acquired, Kind: simba.EventAcquired, Mutex: mutex, Owner: s.owner, Token: s.token}
	// The tenure began by a handoff if the owner was a waiter. If this reply has overtaken the
	// reply of confirm.lua, the owner's wait is still registered here.
	if s.status == "confirmed" || len(s.grants) > 0 || b.Waiters.Find(mutex, s.owner) != nil {
		e.Reason = "handoff"
	}
	if last, known := b.Events.Last(mutex); known && last.Token >= s.token {
		return // a later reply has arrived already
	}
	b.Events.Record(e)
}
