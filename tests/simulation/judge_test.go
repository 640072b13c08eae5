package simulation

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// judge holds what clients are told against what the model says that they must be told, and names
// the rule that is broken if it differs.
type judge struct {
	wireIDs  int
	maxToken uint64            // the largest that anyone was told
	events   map[uint64]string // those that anyone was told, by seq
	lastSeq  uint64            // the largest of them
	lastSaid uint64            // the last that the onlooker was told
	stopping bool              // the server stops: it may refuse
	orderly  bool              // the life before ended so
	frozen   bool              // the store has failed: nothing that is done from then on is ever told
	stepped  time.Duration     // when the wall clock was set last
}

func (w *world) violate(rule, format string, args ...any) {
	v := violation{rule, fmt.Sprintf("at %v: ", w.now()) + fmt.Sprintf(format, args...)}
	w.report.violations = append(w.report.violations, v)
	w.logf(nil, w.now(), "VIOLATION %v", v)
	w.lines[len(w.lines)-1].wire = math.MaxInt // the last of that instant
}

func (w *world) broken() bool { return len(w.report.violations) > 0 }

// takeIn looks at all that has happened up to now. Everybody else in the bubble waits.
func (w *world) takeIn() {
	for _, h := range w.inbox.take() {
		if h.what == died {
			w.pass(h.at)
			w.frozen = true
			continue
		}
		if h.wire.life != w.life || w.broken() {
			continue
		}
		w.pass(h.at)
		w.handle(h, w.frozen)
	}
	w.pass(w.now())
	if !w.broken() {
		w.overdue()
	}
}

// pass lets time pass for the model, up to t or to when the store failed.
func (w *world) pass(t time.Duration) {
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
		if k.met || frozen || w.stopping {
			return
		}
		k.met = true
		for _, r := range k.pending {
			if r.kind == reqAcquire && r.wait && len(r.got) == 0 {
				r.mx.gone(r)
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
			return // since the store has failed, at this very instant
		default:
			w.violate(ruleLiveness, "the server closes the connection %s/%d", k.owner, k.id)
		}
		k.channels = nil
		for _, mx := range w.model.mutexes {
			mx.closed(k)
		}
	case ended:
		if len(k.pending) > 0 {
			w.logf(k, h.at, "no reply to %d requests", len(k.pending))
			w.count("reply lost")
		}
		k.over = true
	}
}

func (w *world) heard(k *wire, v any, at time.Duration) {
	list, isList := v.([]any)
	p, isPush := v.(push)
	switch {
	case isPush:
		w.told(k, p, at)
		return
	case isList && len(list) == 3 && list[0] == "message":
		w.told(k, list, at)
		return
	case len(k.pending) == 0:
		w.violate(ruleReplies, "%s/%d hears %v, and has not asked", k.owner, k.id, v)
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

// span is when something that rests on a state of a mutex may be told.
func (w *world) span(mx *mutex, at time.Duration, on int) span {
	s := span{at, w.disk.settledBy(at)}
	if w.durability == memory {
		s.until = at
		return s
	}
	for i := on; i > 0; i-- {
		if st := mx.states[i]; w.durability == always || st.forced {
			s.from = max(s.from, w.disk.settledBy(st.at))
			break
		}
	}
	return s
}

// early reports whether something is told too early, that is, before it is durable.
func (w *world) early(mx *mutex, what string, due time.Duration, on int, at time.Duration) bool {
	s := w.span(mx, due, on)
	mx.told = max(mx.told, on)
	if at < s.from {
		w.violate(ruleDurable, "%s is told at %v and durable at %v", what, at, s.from)
	}
	return at < s.from
}

func (w *world) timely(r *request, due time.Duration, on int, at time.Duration) bool {
	if r.mx == nil {
		return true
	}
	if w.early(r.mx, fmt.Sprintf("%s: %v", r.who, r), due, on, at) {
		return false
	}
	if s := w.span(r.mx, due, on); at > s.until && !r.wire.lax && w.sound() {
		w.violate(w.lateRule(r), "%s: %v is answered at %v, it could be at %v", r.who, r, at, s.until)
		return false
	}
	return true
}

// lateRule is the rule that a request's answer breaks if it does not come in time.
func (w *world) lateRule(r *request) string {
	if r.wait && r.due.status == "acquired" {
		return ruleWakeup
	}
	return ruleLiveness
}

// sound reports whether the disk has no fault.
func (w *world) sound() bool {
	f, _, _ := w.disk.faultSince()
	return f == sound && w.fatal.Load() == 0
}

// overdue finds what should have been told by now.
func (w *world) overdue() {
	now := w.now()
	_, _, met := w.disk.faultSince()
	if met != 0 && w.fatal.Load() == 0 && now > met+time.Second {
		w.violate(ruleFatal, "the disk failed at %v, and the process runs on", met)
	}
	if !w.sound() || !w.up || w.stopping {
		return
	}
	for _, mx := range w.model.mutexes {
		for _, e := range mx.events {
			if s := w.span(mx, e.at, e.state); s.until <= now {
				w.violate(w.missedRule(mx, e), "%s: nobody is told of %q of %s at %v", mx.name, e.kind, e.who, e.at)
				return
			}
		}
		for _, t := range mx.turns {
			if s := w.span(mx, t.at, mx.state()); s.until <= now && slices.ContainsFunc(t.to, (*wire).listens) {
				w.violate(ruleWakeup, "%s: it was the turn of %s at %v, and it was not told", mx.name, t.who, t.at)
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
				w.violate(w.lateRule(r), "%s: %v, due at %v, is not answered", r.who, r, r.due.at)
				return
			}
		}
	}
}

func (k *wire) listens() bool { return !k.gone && !k.hungUp && !k.lax }

// missedRule is the rule that is broken when an event does not come.
func (w *world) missedRule(mx *mutex, e event) string {
	switch {
	case e.kind == "expired":
		return ruleClock // it goes on for too long
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
				w.early(mx, "the turn of "+k.owner, t.at, mx.stateAt(t.at), at)
				t.to = slices.Delete(t.to, n, n+1)
				mx.turns = slices.DeleteFunc(mx.turns, func(t turn) bool { return len(t.to) == 0 })
				return
			}
		}
		w.violate(ruleOrder, "%s is told %q of %s, and it is not its turn", k.owner, payload, mx.name)
		return
	}
	w.violate(ruleNotices, "%s hears %q on %s", k.owner, payload, channel)
}

// stateAt is the last state that the mutex was in by t.
func (mx *mutex) stateAt(t time.Duration) int {
	i := mx.state()
	for i > 0 && mx.states[i].at > t {
		i--
	}
	return i
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

func (m *model) mutex(name string) *mutex {
	for _, mx := range m.mutexes {
		if mx.name == name {
			return mx
		}
	}
	return nil
}

// lengthRule is the rule of a lease that is cut or goes on for too long: that of the clock, if a clock was set or
// the server restarted during the tenure.
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
		case w.model.now < w.model.quiet:
			return ruleDurable
		case mx.isHandedToTheDead(n):
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
	case mx.isHandedToTheDead(n):
		return ruleDeadWaiter
	case n.Event == "acquired" && e.kind == "acquired":
		return ruleOrder
	case n.Event == "acquired" && (w.model.now < w.model.quiet || e.kind == "queued" && e.who == n.Owner):
		return w.unexpectedRule(mx, n)
	case n.Event == "queued" && e.kind == "acquired" && e.who == n.Owner:
		return ruleWakeup // it is kept, for nobody
	case n.Event == "acquired" && e.tenure != nil && e.who == n.Owner:
		return ruleTokens
	case n.Event == "acquired" && e.tenure != nil:
		return ruleOneOwner
	case n.Event == "expired" && !slices.ContainsFunc(mx.events, func(e event) bool { return e.kind == n.Event && e.who == n.Owner }):
		return w.lengthRule(mx.held)
	}
	return w.missedRule(mx, e)
}

// isHandedToTheDead reports whether an event tells that the mutex was handed to someone on whose
// connection nobody waits.
func (mx *mutex) isHandedToTheDead(n notice) bool {
	if n.Event != "acquired" || n.Reason != "handoff" {
		return false
	}
	if mx.held != nil && mx.held.owner == n.Owner {
		return false
	}
	p := mx.find(n.Owner)
	return p == nil || p.blocked == nil
}

// asks reports whether a contender waits for the answer to a request of a kind.
func (w *world) asks(mx *mutex, who string, kind reqKind) bool {
	return slices.ContainsFunc(w.wires, func(k *wire) bool {
		return slices.ContainsFunc(k.pending, func(r *request) bool { return r.mx == mx && r.who == who && r.kind == kind })
	})
}

// bind notes the token of a tenure, when it is told for the first time.
func (w *world) bind(mx *mutex, t *tenure, token uint64) bool {
	switch {
	case t.token == 0 && token > t.floor:
		t.token = token
		w.maxToken = max(w.maxToken, token)
		for _, c := range w.clients {
			if c.name == t.owner {
				c.known[mx] = token
			}
		}
		return true
	case t.token == 0:
		w.violate(ruleTokens, "%s: tenure %d of %s has the token %d, and %d was told before", mx.name, t.rank, t.owner, token, t.floor)
		return false
	case t.token != token:
		w.violate(ruleTokens, "%s: tenure %d of %s has the token %d, and was told as %d", mx.name, t.rank, t.owner, token, t.token)
		return false
	}
	return true
}

// judgeReply holds a reply against what it must be.
func (w *world) judgeReply(r *request, at time.Duration) {
	last := r.got[len(r.got)-1]
	if e, ok := last.(respError); ok {
		w.logf(r.wire, at, "← %s", e)
		if w.stopping && strings.HasPrefix(string(e), "UNBLOCKED") {
			return
		}
		w.violate(ruleReplies, "%s: %v is answered %q", r.who, r, e)
		return
	}
	if r.kind == reqHello {
		return
	}
	status := w.status(r, last)
	if r.due == nil {
		w.logf(r.wire, at, "← %v", last)
		w.violate(w.statusRule(r, status), "%s: %v is answered %q, and must wait", r.who, r, status)
		return
	}
	d := r.due
	w.logf(r.wire, at, "← %s: %s", reqNames[r.kind], d.show())
	if r.wait && status == "timeout" && d.status == "acquired" && r.mx.held != d.record.held {
		w.count("granted and over before it was told")
		return
	}
	if status != d.status {
		w.violate(w.statusRule(r, status), "%s: %v is answered %q, it should be %q", r.who, r, status, d.status)
		return
	}
	if !w.timely(r, d.at, d.state, at) {
		return
	}
	w.count("told " + status)
	switch r.kind {
	case reqAcquire, reqGuard:
		w.judgeOutcome(r, record(last), at)
	case reqOwner:
		w.judgeOwner(r, last)
	case reqQueue:
		w.judgeQueue(r, last)
	case reqHistory:
		w.judgeHistory(r, last)
	case reqGet:
		w.judgeGet(r, last)
	case reqWatch:
		w.judgeGet(r, last)
	}
}

// show is an outcome for the log, with what is the same in every run of a seed.
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

// status is what a reply says in a word.
func (w *world) status(r *request, v any) string {
	switch r.kind {
	case reqAcquire, reqGuard:
		s, _ := record(v)["status"].(string)
		return s
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

// statusRule is the rule that a wrong status breaks.
func (w *world) statusRule(r *request, got string) string {
	mx := r.mx
	var held *tenure
	should := ""
	kept := time.Duration(0)
	if r.due != nil {
		held, should, kept = r.due.record.held, r.due.status, r.due.record.kept
	} else {
		held = mx.held
	}
	if w.model.now < w.model.quiet && (got == "acquired" || got == "OK") {
		return ruleDurable
	}
	for _, e := range mx.events { // not told yet
		if e.reason == "waiter gone" || e.reason == "session closed" {
			return w.missedRule(mx, e) // that is why
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
		switch {
		case held != nil && held.owner != r.who:
			return w.lengthRule(held)
		case kept != 0:
			return ruleOrder
		}
		return ruleOrder
	case got == "renewed":
		return w.lengthRule(held)
	case should == "acquired" || should == "OK":
		if r.wait || r.kind == reqAcquire && record(r.got[0])["owner"] == "" {
			return ruleWakeup // it is kept, for nobody
		}
		return ruleClock // the mutex is free, and not to be had
	}
	return ruleReplies
}

// left is what remains until end, in milliseconds rounded up.
func left(end, now time.Duration) int64 {
	d := max(0, end-now)
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// judgeOutcome takes the record of ACQUIRE and GUARD.
func (w *world) judgeOutcome(r *request, rec map[string]any, at time.Duration) {
	d := r.due
	s := d.record
	owner, _ := rec["owner"].(string)
	token, _ := rec["token"].(int64)
	ttl, _ := rec["ttl"].(int64)
	transition, _ := rec["transition"].(int64)
	position, _ := rec["position"].(int64)
	if r.wait && (d.status == "timeout" || d.status == "queued") {
		// It ended by another's doing, and was described when it looked up.
		return
	}
	switch {
	case s.held == nil && (owner != "" || token != 0):
		rule := w.lengthRule(nil)
		if w.model.now < w.model.quiet {
			rule = ruleDurable
		}
		w.violate(rule, "%s: %v shows the owner %s of a mutex that is free", r.who, r, owner)
		return
	case s.held == nil:
		if kept := left(s.kept, d.at); ttl != 0 || transition != kept {
			rule := ruleWindows
			if ttl == 0 && transition > kept {
				rule = ruleWakeup
			}
			w.violate(rule, "%s: %v shows the transition %d of a mutex that is kept for %d ms", r.who, r, transition, kept)
			return
		}
	case owner != s.held.owner:
		w.violate(ruleOneOwner, "%s: %v shows the owner %s, it is %s", r.who, r, owner, s.held.owner)
		return
	default:
		if !w.bind(r.mx, s.held, uint64(token)) {
			return
		}
		from := d.at
		if r.wait && d.status != "renewed" {
			from = at // it was described when it looked up
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
			w.violate(rule, "%s: %v shows ttl %d and transition %d, they are %d and %d", r.who, r, ttl, transition,
				left(s.lease.ttlEnd(), d.at), left(s.lease.end(), d.at))
			return
		}
	}
	if int(position) != s.position && !r.wait {
		w.violate(ruleOrder, "%s: %v shows position %d, it is %d", r.who, r, position, s.position)
	}
}

func (w *world) judgeOwner(r *request, v any) {
	d, s := r.due, r.due.record
	if v == nil || s.held == nil {
		if v != nil || s.held != nil {
			w.violate(w.lengthRule(s.held), "%s: %v is %v, it should be %s", r.who, r, v, d.show())
		}
		return
	}
	rec := record(v)
	token, _ := rec["token"].(int64)
	if rec["owner"] != s.held.owner {
		w.violate(ruleOneOwner, "%s: %v shows %v, it is %s", r.who, r, rec["owner"], s.held.owner)
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
			w.violate(rule, "%s: %v shows %s %v, it is %d", r.who, r, f.name, got, f.want)
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
			w.violate(ruleOrder, "%s: %v shows position %v for %d", r.who, r, rec["position"], len(got))
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
		w.violate(ruleDeadWaiter, "%s: %v is %q, it should be %q", r.who, r, got, want)
	case len(got) > len(want):
		w.violate(ruleNothingLeft, "%s: %v is %q, it should be %q", r.who, r, got, want)
	default:
		w.violate(ruleOrder, "%s: %v is %q, it should be %q", r.who, r, got, want)
	}
}

// judgeHistory takes the events of a mutex: they are those that were told, and make sense.
func (w *world) judgeHistory(r *request, v any) {
	list, _ := v.([]any)
	last := uint64(0)
	token := uint64(0)
	for _, e := range list {
		rec := record(e)
		num := func(name string) uint64 { n, _ := rec[name].(int64); return uint64(n) }
		str := func(name string) string { s, _ := rec[name].(string); return s }
		n := notice{num("seq"), int64(num("at")), str("event"), r.mx.name, str("owner"), num("token"), str("reason")}
		if n.Seq <= last || w.events[n.Seq] != "" && w.events[n.Seq] != n.String() {
			w.violate(ruleNotices, "%s: the history has %v after %d, told was %q", r.who, n, last, w.events[n.Seq])
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
		w.violate(w.lengthRule(r.due.record.held), "%s: GET %s is %v, it should be %v", r.who, r.mx.name, v, want)
	}
}
