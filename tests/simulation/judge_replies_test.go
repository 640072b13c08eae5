package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// bind sets the token of a tenure when a client learns the token for the first time. Later it
// checks that the token is the same.
func (w *world) bind(mx *mutex, t *tenure, token uint64) bool {
	switch {
	case t.token == 0 && token > t.floor:
		t.token = token
		w.maxToken = max(w.maxToken, token)
		for _, c := range w.clients {
			if c.name == t.owner {
				c.known[mx] = max(c.known[mx], token)
			}
		}
		return true
	case t.token == 0:
		w.violate(ruleTokens, "%s: tenure %d of %s has the token %d, but an earlier tenure has %d", mx.name, t.rank, t.owner, token, t.floor)
		return false
	case t.token != token:
		w.violate(ruleTokens, "%s: tenure %d of %s has the token %d, but an earlier reply showed %d", mx.name, t.rank, t.owner, token, t.token)
		return false
	}
	return true
}

func (w *world) judgeReply(r *request, at time.Duration) {
	last := r.got[len(r.got)-1]
	if e, ok := last.(respError); ok {
		w.logf(r.wire, at, "← %s", e)
		if w.stopping && strings.HasPrefix(string(e), "UNBLOCKED") {
			return
		}
		w.violate(ruleReplies, "%s: the reply to %v is the error %q", r.who, r, e)
		return
	}
	if r.kind == reqHello {
		return
	}
	status := w.status(r, last)
	if r.due == nil {
		w.logf(r.wire, at, "← %v", last)
		w.violate(w.statusRule(r, status), "%s: the reply to %v is %q, but the request must wait", r.who, r, status)
		return
	}
	d := r.due
	w.logf(r.wire, at, "← %s: %s", reqNames[r.kind], d.show())
	if r.wait && status == "timeout" && d.status == "acquired" && d.record.held.spent {
		w.count("grant expired before its reply")
		return
	}
	if status != d.status {
		w.violate(w.statusRule(r, status), "%s: the reply to %v is %q, want %q", r.who, r, status, d.status)
		return
	}
	if !w.timely(r, d.at, d.state, at) {
		return
	}
	w.count("reply " + status)
	switch r.kind {
	case reqAcquire, reqGuard:
		w.judgeOutcome(r, record(last), at)
	case reqOwner:
		w.judgeOwner(r, last)
	case reqQueue:
		w.judgeQueue(r, last)
	case reqHistory:
		w.judgeHistory(r, last)
	case reqGet, reqWatch:
		w.judgeGet(r, last)
	}
}

// show formats an outcome for the log. The text is the same in every run of a seed, so it has no
// token.
func (d *outcome) show() string {
	s := d.status
	if h := d.record.held; h != nil {
		s += fmt.Sprintf(" (%s #%d until %v)", h.owner, h.rank, d.record.lease.end())
	}
	if d.record.position > 0 {
		s += fmt.Sprintf(" position %d", d.record.position)
	}
	return s
}

// status returns a reply as one word, as in outcome.status.
func (w *world) status(r *request, v any) string {
	switch r.kind {
	case reqAcquire, reqGuard:
		return record(v).Text("status")
	case reqRelease, reqBreak, reqCheck, reqDelete:
		return fmt.Sprint(v)
	case reqSet:
		if v == nil {
			return "nil"
		}
		return fmt.Sprint(v)
	case reqExec:
		list, ok := v.([]any)
		switch {
		case v == nil:
			return "aborted"
		case !ok || len(list) != 1:
			return fmt.Sprint(v)
		case list[0] == nil:
			return "nil"
		}
		return fmt.Sprint(list[0])
	}
	return ""
}

// left returns the time until end in milliseconds, rounded up.
func left(end, now time.Duration) int64 {
	d := max(0, end-now)
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func (w *world) judgeOutcome(r *request, rec simbatest.Record, at time.Duration) {
	d := r.due
	s := d.record
	owner, _ := rec["owner"].(string)
	token := rec.Number("token")
	ttl, _ := rec["ttl"].(int64)
	transition, _ := rec["transition"].(int64)
	position, _ := rec["position"].(int64)
	if r.wait && (d.status == "timeout" || d.status == "queued") {
		// The record shows the mutex when the waiter woke up, not when its wait ended.
		return
	}
	switch {
	case s.held == nil && (owner != "" || token != 0):
		rule := w.lengthRule(nil)
		if w.model.now < w.model.recovered {
			rule = ruleDurable
		}
		w.violate(rule, "%s: the reply to %v shows the owner %s, but the mutex is free", r.who, r, owner)
		return
	case s.held == nil:
		if kept := left(s.kept, d.at); ttl != 0 || transition != kept {
			rule := ruleWindows
			if ttl == 0 && transition > kept {
				rule = ruleWakeup
			}
			w.violate(rule, "%s: the reply to %v shows transition %d, want %d ms until the end of the reservation", r.who, r, transition, kept)
			return
		}
	case owner != s.held.owner:
		w.violate(ruleOneOwner, "%s: the reply to %v shows the owner %s, want %s", r.who, r, owner, s.held.owner)
		return
	default:
		if !w.bind(r.mx, s.held, uint64(token)) {
			return
		}
		from := d.at
		if r.wait && d.status != "renewed" {
			from = at // the record shows the mutex when the waiter woke up
			if r.mx.held != s.held || r.mx.held.windows != s.lease {
				return
			}
		}
		if ttl < left(s.lease.ttlEnd(), max(at, from)) || ttl > left(s.lease.ttlEnd(), d.at) ||
			transition < left(s.lease.end(), max(at, from)) || transition > left(s.lease.end(), d.at) ||
			!r.wait && (ttl != left(s.lease.ttlEnd(), d.at) || transition != left(s.lease.end(), d.at)) {
			rule := ruleWindows
			switch {
			case w.lengthRule(s.held) == ruleClock && d.status != "renewed":
				rule = ruleClock
			case r.kind == reqGuard:
				rule = ruleGuard
			}
			w.violate(rule, "%s: the reply to %v shows ttl %d and transition %d, want %d and %d", r.who, r, ttl, transition,
				left(s.lease.ttlEnd(), d.at), left(s.lease.end(), d.at))
			return
		}
	}
	if int(position) != s.position && !r.wait {
		w.violate(ruleOrder, "%s: the reply to %v shows position %d, want %d", r.who, r, position, s.position)
	}
}

func (w *world) judgeOwner(r *request, v any) {
	d, s := r.due, r.due.record
	if v == nil || s.held == nil {
		if v != nil || s.held != nil {
			w.violate(w.lengthRule(s.held), "%s: the reply to %v is %v, want %s", r.who, r, v, d.show())
		}
		return
	}
	rec := record(v)
	token := rec.Number("token")
	if rec["owner"] != s.held.owner {
		w.violate(ruleOneOwner, "%s: the reply to %v shows the owner %v, want %s", r.who, r, rec["owner"], s.held.owner)
		return
	}
	if !w.bind(r.mx, s.held, uint64(token)) {
		return
	}
	l := s.lease
	ttlAt := l.wall + l.ttl.Milliseconds()
	for _, f := range []struct {
		name string
		want int64
		rule string
	}{
		{"acquired_at", l.wall, ruleWindows},
		{"ttl_at", ttlAt, ruleWindows},
		{"transition_at", ttlAt + l.transition.Milliseconds(), ruleWindows},
		{"now", l.wall + (d.at - l.start).Milliseconds(), ruleClock},
		{"ttl", left(l.ttlEnd(), d.at), ruleWindows},
		{"transition", left(l.end(), d.at), ruleWindows},
		{"waiters", int64(len(s.queue)), ruleNothingLeft},
	} {
		if got := rec[f.name]; got != f.want {
			rule := f.rule
			if rule == ruleWindows && w.lengthRule(s.held) == ruleClock {
				rule = ruleClock
			}
			w.violate(rule, "%s: the reply to %v shows %s %v, want %d", r.who, r, f.name, got, f.want)
			return
		}
	}
}

func (w *world) judgeQueue(r *request, v any) {
	list, _ := v.([]any)
	d := r.due
	var got, want []string
	for _, e := range list {
		rec := record(e)
		got = append(got, fmt.Sprintf("%v %v %v", rec["contender"], rec["kind"], rec["waiting"]))
		if rec["position"] != int64(len(got)) {
			w.violate(ruleOrder, "%s: the reply to %v shows position %v, want %d", r.who, r, rec["position"], len(got))
			return
		}
	}
	for _, p := range d.record.queue {
		kind := "polling"
		if p.blocked != nil {
			kind = "blocked"
		}
		want = append(want, fmt.Sprintf("%v %v %v", p.who, kind, (d.at-p.since).Milliseconds()))
	}
	switch {
	case slices.Equal(got, want):
	case len(got) == len(want) && strings.Count(strings.Join(got, " "), " blocked ") > strings.Count(strings.Join(want, " "), " blocked "):
		w.violate(ruleDeadWaiter, "%s: the reply to %v is %q, want %q", r.who, r, got, want)
	case len(got) > len(want):
		w.violate(ruleNothingLeft, "%s: the reply to %v is %q, want %q", r.who, r, got, want)
	default:
		w.violate(ruleOrder, "%s: the reply to %v is %q, want %q", r.who, r, got, want)
	}
}

// judgeHistory judges a reply to SIMBA.HISTORY. Its events must equal the published events of the
// same number. Numbers and tokens must grow.
func (w *world) judgeHistory(r *request, v any) {
	list, _ := v.([]any)
	last := uint64(0)
	token := uint64(0)
	for _, e := range list {
		rec := record(e)
		n := notice{
			uint64(rec.Number("seq")), rec.Number("at"), rec.Text("event"), r.mx.name, rec.Text("owner"), uint64(rec.Number("token")),
			rec.Text("reason"),
		}
		if n.Seq <= last || w.events[n.Seq] != "" && w.events[n.Seq] != n.String() {
			w.violate(ruleNotices, "%s: the history has %v after event %d; the published event with its number: %q", r.who, n, last, w.events[n.Seq])
			return
		}
		last = n.Seq
		w.remember(n)
		if n.Event == "acquired" {
			if n.Token <= token {
				w.violate(ruleTokens, "%s: in the history token %d comes after %d", r.mx.name, n.Token, token)
				return
			}
			token = n.Token
		}
	}
}

func (w *world) judgeGet(r *request, v any) {
	want := any(nil)
	if h := r.due.record.held; h != nil {
		want = h.owner
	}
	if v != want {
		w.violate(w.lengthRule(r.due.record.held), "%s: the reply to GET %s is %v, want %v", r.who, r.mx.name, v, want)
	}
}
