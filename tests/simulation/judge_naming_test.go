package simulation

import (
	"slices"
	"time"
)

func (w *world) lateRule(r *request) string {
	if r.wait && r.due.status == "acquired" {
		return ruleWakeup
	}
	return ruleLiveness
}

// closedRule returns the rule that the server breaks if it closes a client's connection at t.
func (w *world) closedRule(t time.Duration) string {
	if _, _, met := w.disk.faultSince(); met != 0 || w.disk.hangsAt(t) {
		return ruleFatal // the disk fails or hangs, so the process should have ended
	}
	return ruleLiveness
}

func (w *world) missedRule(mx *mutex, e event) string {
	switch {
	case e.kind == "expired":
		return w.lengthRule(e.tenure) // the lease lasts too long
	case e.kind == "acquired" && e.reason == "handoff":
		return ruleWakeup
	case e.kind == "left":
		return ruleNothingLeft
	case e.reason == "waiter gone":
		return ruleDeadWaiter
	case e.reason == "session closed":
		return ruleNothingLeft
	case e.kind == "released":
		return ruleTokens
	}
	return ruleNotices
}

// lengthRule returns the rule that a lease of the wrong length breaks. This is ruleClock if, during
// the tenure, the server restarted or the schedule set the wall clock.
func (w *world) lengthRule(t *tenure) string {
	if t != nil && (t.former || w.stepped > t.start) {
		return ruleClock
	}
	return ruleOneOwner
}

func (w *world) unexpectedRule(mx *mutex, n notice) string {
	switch n.Event {
	case "expired":
		return w.lengthRule(mx.held)
	case "acquired":
		switch {
		case w.model.now < w.model.recovered:
			return ruleDurable
		case mx.isHandedToDisconnected(n):
			return ruleDeadWaiter
		case mx.held != nil && mx.held.owner == n.Owner:
			return ruleTokens
		case w.asks(mx, n.Owner, reqGuard):
			return ruleGuard
		case w.asks(mx, n.Owner, reqExec):
			return ruleReplies
		case mx.held != nil:
			return w.lengthRule(mx.held)
		}
		return ruleOrder
	case "released", "broken":
		return ruleTokens
	}
	return ruleNotices
}

func (w *world) insteadRule(mx *mutex, e event, n notice) string {
	switch {
	case mx.isHandedToDisconnected(n):
		return ruleDeadWaiter
	case n.Event == "acquired" && e.kind == "acquired":
		return ruleOrder
	case n.Event == "acquired" && (w.model.now < w.model.recovered || e.kind == "queued" && e.who == n.Owner):
		return w.unexpectedRule(mx, n)
	case n.Event == "queued" && e.kind == "acquired" && e.who == n.Owner:
		return ruleWakeup // the mutex is reserved for nobody
	case n.Event == "acquired" && e.tenure != nil && e.who == n.Owner:
		return ruleTokens
	case n.Event == "acquired" && e.tenure != nil:
		return ruleOneOwner
	case n.Event == "expired" && !slices.ContainsFunc(mx.events, func(e event) bool { return e.kind == n.Event && e.who == n.Owner }):
		return w.lengthRule(mx.held)
	}
	return w.missedRule(mx, e)
}

// isHandedToDisconnected reports whether an event hands the mutex to a contender without a blocked
// request.
func (mx *mutex) isHandedToDisconnected(n notice) bool {
	if n.Event != "acquired" || n.Reason != "handoff" {
		return false
	}
	if mx.held != nil && mx.held.owner == n.Owner {
		return false
	}
	p := mx.find(n.Owner)
	return p == nil || p.blocked == nil
}

// asks reports whether a contender awaits the reply to a request of the given kind.
func (w *world) asks(mx *mutex, who string, kind reqKind) bool {
	return slices.ContainsFunc(w.wires, func(k *wire) bool {
		return slices.ContainsFunc(k.pending, func(r *request) bool { return r.mx == mx && r.who == who && r.kind == kind })
	})
}

func (w *world) statusRule(r *request, got string) string {
	mx := r.mx
	var held *tenure
	should := ""
	if r.due != nil {
		held, should = r.due.record.held, r.due.status
	} else {
		held = mx.held
	}
	if w.model.now < w.model.recovered && (got == "acquired" || got == "OK") {
		return ruleDurable
	}
	for _, e := range mx.events { // expected events that nobody has received
		if e.reason == "waiter gone" || e.reason == "session closed" {
			return w.missedRule(mx, e) // its absence explains the wrong status
		}
	}
	switch r.kind {
	case reqGuard:
		if got == "renewed" {
			return ruleGuard
		}
		return w.lengthRule(held)
	case reqRelease, reqCheck, reqDelete, reqBreak:
		if r.token != 0 {
			return ruleTokens
		}
		return w.lengthRule(held)
	case reqExec:
		return ruleReplies
	}
	switch {
	case got == "acquired" && should == "renewed":
		return ruleTokens
	case got == "acquired" || got == "OK":
		if held != nil && held.owner != r.who {
			return w.lengthRule(held)
		}
		return ruleOrder
	case got == "renewed":
		return w.lengthRule(held)
	case should == "acquired" || should == "OK":
		if r.wait || r.kind == reqAcquire && record(r.got[0])["owner"] == "" {
			return ruleWakeup // the mutex is reserved for nobody
		}
		for _, e := range mx.events {
			if e.kind == "expired" {
				return w.missedRule(mx, e)
			}
		}
	}
	return ruleReplies
}
