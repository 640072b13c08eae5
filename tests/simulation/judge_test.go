package simulation

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// judge compares the replies and messages that clients receive with those that the model expects.
// It names the rule that a difference breaks.
type judge struct {
	wireIDs       int
	maxToken      uint64            // the largest token that a client received
	events        map[uint64]string // the events that clients received, by Seq
	lastSeq       uint64            // the largest Seq in events
	lastAnnounced uint64            // the last Seq on the onlooker's wire
	stopping      bool              // the server stops, and may refuse requests
	orderly       bool              // the server's last process ended with an orderly stop
	unclear       bool              // the model cannot predict the next steps
	frozen        bool              // the store has failed, and reports no later change
	stepped       time.Duration     // when the schedule last set the wall clock
}

func (w *world) violate(rule, format string, args ...any) {
	v := violation{rule, fmt.Sprintf("at %v: ", w.now()) + fmt.Sprintf(format, args...)}
	w.report.violations = append(w.report.violations, v)
	w.logf(nil, w.now(), "VIOLATION %v", v)
	w.lines[len(w.lines)-1].wire = math.MaxInt // after all other lines of this instant
}

// broken reports whether the run must end now.
func (w *world) broken() bool { return len(w.report.violations) > 0 || w.unclear }

// takeIn judges all happenings up to now. Meanwhile all other goroutines of the bubble must be
// blocked.
func (w *world) takeIn() {
	for _, h := range w.inbox.take() {
		if h.what == died {
			w.advanceTo(h.at)
			w.frozen = true
			continue
		}
		if h.wire.life != w.life || w.broken() {
			continue
		}
		w.advanceTo(h.at)
		w.handle(h, w.frozen)
	}
	w.advanceTo(w.now())
	if !w.broken() {
		w.overdue()
	}
}

// advanceTo moves the model's time to t. If the store failed before t, the model stops at that
// instant.
func (w *world) advanceTo(t time.Duration) {
	if f := time.Duration(w.fatal.Load()); f != 0 {
		t = min(t, f)
	}
	w.model.advance(t)
}

func (w *world) handle(h happening, frozen bool) {
	k := h.wire
	switch h.what {
	case heard:
		w.heard(k, h.value, h.at)
	case noticed:
		if k.noticed || frozen || w.stopping {
			return
		}
		k.noticed = true
		for _, r := range k.pending {
			if r.kind == reqAcquire && r.wait && len(r.got) == 0 {
				r.mx.disconnected(r)
			}
		}
	case closed:
		k.gone = true
		if frozen || w.stopping {
			return
		}
		switch {
		case k.hungUp || k.lax:
		case w.fatal.Load() == int64(h.at):
			return // the store failed at this instant
		default:
			w.violate(w.closedRule(h.at), "the server closes the connection %s/%d", k.owner, k.id)
		}
		k.channels = nil
		for _, mx := range w.model.mutexes {
			mx.closed(k)
		}
	case ended:
		if len(k.pending) > 0 {
			w.logf(k, h.at, "no reply to %d requests", len(k.pending))
			w.count("no reply")
		}
		k.over = true
	}
}

func (w *world) heard(k *wire, v any, at time.Duration) {
	list, isList := v.([]any)
	p, isPush := v.(push)
	switch {
	case isPush:
		w.handlePush(k, p, at)
		return
	case isList && len(list) == 3 && list[0] == "message":
		w.handlePush(k, list, at)
		return
	case len(k.pending) == 0:
		w.violate(ruleReplies, "%s/%d receives %v without a request", k.owner, k.id, v)
		return
	}
	r := k.pending[0]
	r.got = append(r.got, v)
	if r.missing() > 0 {
		return
	}
	k.pending = k.pending[1:]
	w.judgeReply(r, at)
}

// span returns the interval in which a client may first see an effect that occurs at the given
// instant. The effect reports the mutex's state with the given index.
func (w *world) span(mx *mutex, at time.Duration, index int) span {
	s := span{at, w.durableBy(at)}
	if w.durability == memory {
		s.until = at
		return s
	}
	for i := index; i > 0; i-- {
		if st := mx.states[i]; w.durability == always || st.forced {
			s.from = max(s.from, w.durableBy(st.at))
			break
		}
	}
	return s
}

// early reports whether a client sees a change before it is durable, and records the violation.
func (w *world) early(mx *mutex, what string, due time.Duration, index int, at time.Duration) bool {
	s := w.span(mx, due, index)
	mx.reported = max(mx.reported, index)
	if at < s.from {
		w.violate(ruleDurable, "%s is reported at %v, but durable only at %v", what, at, s.from)
	}
	return at < s.from
}

func (w *world) timely(r *request, due time.Duration, index int, at time.Duration) bool {
	if r.mx == nil {
		return true
	}
	if w.early(r.mx, fmt.Sprintf("%s: the reply to %v", r.who, r), due, index, at) {
		return false
	}
	if s := w.span(r.mx, due, index); at > s.until && !r.wire.lax && w.sound() {
		w.violate(w.lateRule(r), "%s: the reply to %v arrives at %v, but was due at %v", r.who, r, at, s.until)
		return false
	}
	return true
}

// sound reports whether the disk and the store have no fault.
func (w *world) sound() bool {
	f, _, _ := w.disk.faultSince()
	return f == sound && w.fatal.Load() == 0
}

// overdue records a violation if a reply or a message has not arrived in time.
func (w *world) overdue() {
	now := w.now()
	_, _, met := w.disk.faultSince()
	if met != 0 && w.fatal.Load() == 0 && now > met+time.Second {
		w.violate(ruleFatal, "the disk failed at %v, but the process has not ended", met)
	}
	if !w.sound() || !w.up || w.stopping {
		return
	}
	for _, mx := range w.model.mutexes {
		for _, e := range mx.events {
			if s := w.span(mx, e.at, e.state); s.until <= now {
				w.violate(w.missedRule(mx, e), "%s: there is no event %q of %s at %v", mx.name, e.kind, e.who, e.at)
				return
			}
		}
		if mx.odd != "" {
			w.violate(ruleNotices, "%s", mx.odd)
			return
		}
		for _, n := range mx.broadcasts {
			if s := w.span(mx, n.at, n.state); s.until <= now && !n.maybe {
				w.violate(ruleNotices, "%s: there is no message %q at %v", mx.name, n.payload, n.at)
				return
			}
		}
		for _, t := range mx.handoffs {
			if s := w.span(mx, t.at, mx.state()); s.until <= now && slices.ContainsFunc(t.to, (*wire).listens) {
				w.violate(ruleWakeup, "%s: %s was the next waiter at %v, and got no handoff notice", mx.name, t.who, t.at)
				return
			}
		}
	}
	for _, k := range w.wires {
		for _, r := range k.pending {
			if r.due == nil || k.lax || k.hungUp || k.over {
				continue
			}
			until := r.due.at
			if r.mx != nil {
				until = w.span(r.mx, r.due.at, r.due.state).until
			}
			if until <= now {
				w.violate(w.lateRule(r), "%s: there is no reply to %v, due at %v", r.who, r, r.due.at)
				return
			}
		}
	}
}

func (m *model) mutex(name string) *mutex {
	for _, mx := range m.mutexes {
		if mx.name == name {
			return mx
		}
	}
	return nil
}
