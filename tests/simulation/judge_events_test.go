package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// told takes a push.
func (w *world) told(k *wire, p []any, at time.Duration) {
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
		w.judgeTurn(k, fmt.Sprint(p[1]), fmt.Sprint(p[2]), at)
	case kind == "pmessage" && len(p) == 4 && k == w.onlooker:
		w.judgeEvent(fmt.Sprint(p[2]), fmt.Sprint(p[3]), at)
	default:
		w.violate(ruleReplies, "%s/%d is pushed %v", k.owner, k.id, p)
	}
}

func (k *wire) listens() bool { return !k.gone && !k.hungUp && !k.lax }

// judgeTurn takes a notice on a contender's own channel.
func (w *world) judgeTurn(k *wire, channel, payload string, at time.Duration) {
	w.count("turn")
	for _, mx := range w.model.mutexes {
		if channel != "simba:{"+mx.name+"}:"+k.owner {
			continue
		}
		w.logOf(mx, k, at, "← %s on %s", payload, channel)
		for i := range mx.turns {
			t := &mx.turns[i]
			if n := slices.Index(t.to, k); n >= 0 {
				if payload != "released@@"+t.last {
					w.violate(ruleNotices, "%s is told %q of %s, whose last owner was %s", k.owner, payload, mx.name, t.last)
				}
				w.early(mx, "the turn of "+k.owner, t.at, t.state, at)
				t.to = slices.Delete(t.to, n, n+1)
				mx.turns = slices.DeleteFunc(mx.turns, func(t turn) bool { return len(t.to) == 0 })
				return
			}
		}
		if w.stopping {
			return // the stop has taken blocked waiters out of the queue that the model keeps there
		}
		w.violate(ruleOrder, "%s is told %q of %s, and it is not its turn", k.owner, payload, mx.name)
		return
	}
	w.violate(ruleNotices, "%s hears %q on %s", k.owner, payload, channel)
}

// noticed is an event as it is told.
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

// judgeEvent takes one from the channel of events.
func (w *world) judgeEvent(channel, payload string, at time.Duration) {
	var n notice
	if err := json.Unmarshal([]byte(payload), &n); err != nil || channel != "simba-events:{"+n.Mutex+"}" {
		w.violate(ruleNotices, "%q on %s: %v", payload, channel, err)
		return
	}
	if n.Seq <= w.lastSaid || w.events[n.Seq] != "" && w.events[n.Seq] != n.String() {
		w.violate(ruleNotices, "event %v comes after %d, %q", n, w.lastSaid, w.events[n.Seq])
		return
	}
	w.lastSaid = n.Seq
	w.remember(n)
	mx := w.model.mutex(n.Mutex)
	if mx == nil {
		w.violate(ruleNotices, "event %v of a mutex that nobody knows", n)
		return
	}
	if w.stopping && n.Event == "left" {
		return
	}
	if len(mx.events) == 0 {
		w.violate(w.unexpectedRule(mx, n), "%v: nothing of the kind has happened", n)
		return
	}
	e := mx.events[0]
	if e.kind != n.Event || e.who != n.Owner {
		w.violate(w.insteadRule(mx, e, n), "%v, where it should be %q of %s", n, e.kind, e.who)
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
		w.violate(rule, "%v, where it should be %q at %d", n, e.reason, e.wall)
		return
	}
	w.early(mx, fmt.Sprint("the event ", n), e.at, e.state, at)
}

func (w *world) remember(n notice) {
	w.events[n.Seq] = n.String()
	w.lastSeq = max(w.lastSeq, n.Seq)
}
