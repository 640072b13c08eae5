package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

func (w *world) handlePush(k *wire, p []any, at time.Duration) {
	if len(p) == 0 {
		w.violate(ruleReplies, "an empty push")
		return
	}
	switch kind, _ := p[0].(string); {
	case kind == "subscribe" && len(k.pending) > 0 && k.pending[0].kind == reqSubscribe:
		r := k.pending[0]
		k.pending = k.pending[1:]
		w.timely(r, r.due.at, r.due.state, at)
		w.logf(k, at, "← subscribed")
	case kind == "message" && len(p) == 3:
		w.judgeHandoffNotice(k, fmt.Sprint(p[1]), fmt.Sprint(p[2]), at)
	case kind == "pmessage" && len(p) == 4 && k == w.onlooker:
		if channel := fmt.Sprint(p[2]); strings.HasPrefix(channel, "simba:{") {
			w.judgeBroadcast(channel, fmt.Sprint(p[3]), at)
		} else {
			w.judgeEvent(channel, fmt.Sprint(p[3]), at)
		}
	default:
		w.violate(ruleReplies, "%s/%d receives the push %v", k.owner, k.id, p)
	}
}

func (k *wire) listens() bool { return !k.gone && !k.hungUp && !k.lax }

// judgeHandoffNotice judges a message on a contender's own channel of a mutex.
func (w *world) judgeHandoffNotice(k *wire, channel, payload string, at time.Duration) {
	w.count("handoff notice")
	for _, mx := range w.model.mutexes {
		if channel != "simba:{"+mx.name+"}:"+k.owner {
			continue
		}
		w.logOf(mx, k, at, "← %s on %s", payload, channel)
		for i := range mx.handoffs {
			t := &mx.handoffs[i]
			if n := slices.Index(t.to, k); n >= 0 {
				if payload != "released@@"+cmp.Or(t.last, k.owner) {
					w.violate(ruleNotices, "%s receives %q of %s, whose last owner was %s", k.owner, payload, mx.name, t.last)
				}
				w.early(mx, "the handoff notice of "+k.owner, t.at, t.state, at)
				t.to = slices.Delete(t.to, n, n+1)
				mx.handoffs = slices.DeleteFunc(mx.handoffs, func(t handoffNotice) bool { return len(t.to) == 0 })
				return
			}
		}
		if w.stopping {
			return // the stop removed waiters before this one, which the model does not do
		}
		w.violate(ruleOrder, "%s receives %q of %s, and is not the next waiter", k.owner, payload, mx.name)
		return
	}
	w.violate(ruleNotices, "%s receives %q on %s", k.owner, payload, channel)
}

// judgeBroadcast judges a message on the channel of a mutex.
func (w *world) judgeBroadcast(channel, payload string, at time.Duration) {
	mx := w.model.mutex(strings.TrimSuffix(strings.TrimPrefix(channel, "simba:{"), "}"))
	if mx == nil {
		w.violate(ruleNotices, "message %q on %s, but no such mutex exists", payload, channel)
		return
	}
	for len(mx.broadcasts) > 0 && mx.broadcasts[0].payload != payload && mx.broadcasts[0].maybe {
		mx.broadcasts = mx.broadcasts[1:]
	}
	if len(mx.broadcasts) == 0 || mx.broadcasts[0].payload != payload {
		if mx.missed(payload) {
			mx.endReservation()
			mx.freed = ""
			w.count("handoff notice missed")
			return
		}
		if !w.stopping { // a stop removes waiters in its own order
			mx.odd = fmt.Sprintf("at %v: message %q on %s, want one of %+v", at, payload, channel, mx.broadcasts)
		}
		return
	}
	s := mx.broadcasts[0]
	mx.broadcasts = mx.broadcasts[1:]
	w.logOf(mx, w.onlooker, at, "← %s %s", mx.name, payload)
	w.count("said " + payload[:len("acquired")])
	w.early(mx, "the notice "+payload, s.at, s.state, at)
}

// missed reports whether the server may broadcast because a handoff notice reached nobody. It may
// if the subscribers disconnected before the server could send the notice.
func (mx *mutex) missed(payload string) bool {
	return mx.reserved != nil && payload == "released@@"+cmp.Or(mx.last, mx.reserved.who) &&
		!slices.ContainsFunc(mx.handoffs, func(t handoffNotice) bool {
			return t.who == mx.reserved.who && slices.ContainsFunc(t.to, (*wire).listens)
		})
}

// notice is an event as the server publishes it.
type notice struct {
	Seq    uint64
	At     int64
	Event  string
	Mutex  string
	Owner  string
	Token  uint64
	Reason string
}

func (n notice) String() string {
	return fmt.Sprintf("%d %s %s %s %d %q at %d", n.Seq, n.Mutex, n.Event, n.Owner, n.Token, n.Reason, n.At)
}

func (w *world) judgeEvent(channel, payload string, at time.Duration) {
	var n notice
	if err := json.Unmarshal([]byte(payload), &n); err != nil || channel != "simba-events:{"+n.Mutex+"}" {
		w.violate(ruleNotices, "message %q on %s is not an event: %v", payload, channel, err)
		return
	}
	if n.Seq <= w.lastAnnounced || w.events[n.Seq] != "" && w.events[n.Seq] != n.String() {
		w.violate(ruleNotices, "event %v comes after event %d; the earlier event with its number: %q", n, w.lastAnnounced, w.events[n.Seq])
		return
	}
	w.lastAnnounced = n.Seq
	w.remember(n)
	mx := w.model.mutex(n.Mutex)
	if mx == nil {
		w.violate(ruleNotices, "event %v, but no such mutex exists", n)
		return
	}
	if w.stopping && n.Event == "left" {
		return
	}
	if len(mx.events) == 0 {
		w.violate(w.unexpectedRule(mx, n), "event %v, but the model expects no event", n)
		return
	}
	e := mx.events[0]
	if e.kind != n.Event || e.who != n.Owner {
		w.violate(w.insteadRule(mx, e, n), "event %v, want %q of %s", n, e.kind, e.who)
		return
	}
	mx.events = mx.events[1:]
	rank := ""
	if e.tenure != nil {
		if !w.bind(mx, e.tenure, n.Token) {
			return
		}
		rank = fmt.Sprintf(" #%d", e.tenure.rank)
	}
	w.logOf(mx, w.onlooker, at, "← %s %s %s%s %s", mx.name, n.Event, n.Owner, rank, n.Reason)
	w.count("event " + n.Event)
	if n.Reason == "handoff" || n.Reason == "session closed" || n.Reason == "waiter gone" || n.Reason == "lapsed" {
		w.count(n.Reason)
	}
	if n.At != e.wall || n.Reason != e.reason {
		rule := ruleNotices
		if n.Reason == e.reason && n.Event == "expired" {
			rule = w.missedRule(mx, e)
		}
		w.violate(rule, "event %v, want reason %q at %d", n, e.reason, e.wall)
		return
	}
	w.early(mx, fmt.Sprint("the event ", n), e.at, e.state, at)
	if mx.odd != "" && !w.broken() {
		w.violate(ruleNotices, "%s", mx.odd)
	}
}

func (w *world) remember(n notice) {
	w.events[n.Seq] = n.String()
	w.lastSeq = max(w.lastSeq, n.Seq)
}
