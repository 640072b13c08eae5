package simulation

import (
	"cmp"
	"slices"
	"time"
)

// The model implements the rules of mutexes a second time, as plainly as possible: with lists
// instead of indexes, and with exact instants. Its input is each request, when the client sends it,
// and the end of each connection. Its output is each expected reply and message. It has no access
// to the server.

type tenure struct {
	rank    int // number of the tenure among all of the mutex, from 1
	owner   string
	token   uint64 // 0 = no reply has named it yet
	floor   uint64 // the token must be larger than floor
	began   time.Duration
	session *wire    // the connection to which the lease is bound; nil = none
	former  bool     // the tenure began before the server's last restart
	waiter  *request // the blocked request that got the tenure by a handoff; nil after a renewal
	from    *entry   // the queue entry of waiter before the grant
	spent   bool     // the tenure is over, and its waiter was not re-queued
	windows
}

type windows struct {
	start           time.Duration
	wall            int64 // the start, in Unix milliseconds
	ttl, transition time.Duration
}

func (w windows) ttlEnd() time.Duration { return w.start + w.ttl }
func (w windows) end() time.Duration    { return w.start + w.ttl + w.transition }

type entry struct {
	who             string
	order           int      // number of its arrival among all at the mutex
	blocked         *request // nil = a polling waiter
	ttl, transition time.Duration
	session         *wire
	since, lapse    time.Duration // when it arrived; when the entry of a polling waiter ends
	// a polling waiter: it got a handoff notice since the mutex became free
	notified bool
	// a blocked waiter: the grant that expired before its reply; nil = none, or the server has
	// noticed the expiry
	missed *outcome
}

type state struct {
	at     time.Duration
	held   *tenure // nil = free
	lease  windows
	forced bool // no crash may undo this state, not even in async
}

type mutex struct {
	m          *model
	name       string
	held       *tenure
	ranks      int
	arrivals   int
	queue      []*entry
	reserved   *entry          // the next waiter, for which the free mutex is reserved
	until      time.Duration   // the end of the reservation
	recovering bool            // the recovery delay has not ended yet
	last       string          // the last owner; "" = none
	states     []state         // since the server's start, oldest first
	noted      int             // index of the state that the newest event led to
	reported   int             // index of the newest state that a client knows
	version    int             // for WATCH: it grows with each change
	events     []event         // expected on the onlooker's wire, in order
	handoffs   []handoffNotice // notices expected on the subscribers' wires
	// messages expected on the channel of the mutex, in order
	broadcasts []broadcast
	// An unexpected message on the channel of the mutex. The judge reports it after the next event,
	// which may break another rule first.
	odd string
	// The last owner, if the present step ended its tenure early or ended a reservation; "" =
	// neither.
	freed  string
	lapsed bool // a reservation expired in the present step
}

// broadcast is a message that must appear on the channel of the mutex.
type broadcast struct {
	at      time.Duration
	payload string
	state   int
	lapse   bool // sent because a reservation expired
	maybe   bool // not required: a request of the same instant may have taken the mutex first
}

type event struct {
	at        time.Duration
	wall      int64
	kind, who string
	tenure    *tenure // nil for events of the queue
	reason    string
	state     int
}

// handoffNotice is a message that must reach a polling waiter.
type handoffNotice struct {
	at    time.Duration
	who   string
	last  string
	to    []*wire
	state int // index of the mutex's state that the notice reports
}

type model struct {
	w         *world
	now       time.Duration
	mutexes   []*mutex
	window    time.Duration
	grace     time.Duration
	recovered time.Duration // the end of the recovery delay
}

func (mx *mutex) state() int { return len(mx.states) - 1 }

func (mx *mutex) changed(forced bool) {
	s := state{at: mx.m.now, forced: forced, held: mx.held}
	if mx.held != nil {
		s.lease = mx.held.windows
	}
	mx.states = append(mx.states, s)
	mx.version++
}

func (mx *mutex) event(kind, who string, t *tenure, reason string) {
	mx.noted = mx.state()
	mx.events = append(mx.events, event{mx.m.now, mx.m.w.wallMillis(), kind, who, t, reason, mx.state()})
}

func (mx *mutex) find(who string) *entry {
	for _, p := range mx.queue {
		if p.who == who {
			return p
		}
	}
	return nil
}

func (mx *mutex) position(who string) int {
	return 1 + slices.IndexFunc(mx.queue, func(p *entry) bool { return p.who == who })
}

func (mx *mutex) remove(p *entry) {
	mx.queue = slices.DeleteFunc(mx.queue, func(x *entry) bool { return x == p })
}

// advance moves the model's time to t. It applies all changes until then that need no request, in
// order of time.
func (m *model) advance(t time.Duration) {
	for {
		var next *mutex
		due := t + 1
		for _, mx := range m.mutexes {
			if d, ok := mx.deadline(); ok && d < due {
				next, due = mx, d
			}
		}
		if next == nil {
			break
		}
		m.now = max(m.now, due)
		next.elapse()
		next.announce()
	}
	m.now = max(m.now, t)
}

// deadline returns the next instant at which the mutex changes without a request.
func (mx *mutex) deadline() (d time.Duration, ok bool) {
	at := func(t time.Duration) {
		if !ok || t < d {
			d, ok = t, true
		}
	}
	if mx.held != nil {
		at(mx.held.end())
	}
	if mx.reserved != nil {
		at(mx.until)
	}
	for _, p := range mx.queue {
		if p.missed != nil {
			if t := mx.replyTime(p.missed); t > mx.m.now || !mx.inBatch(p) {
				at(t)
			}
		}
		switch {
		case p.blocked == nil:
			at(p.lapse)
		case p.blocked.limit > 0:
			at(p.blocked.sent + p.blocked.limit)
		}
	}
	if mx.recovering && len(mx.queue) > 0 {
		at(mx.m.recovered)
	}
	return d, ok
}

// elapse applies the changes of the present instant that need no request. Grants come before the
// ends of waits.
func (mx *mutex) elapse() {
	mx.tick()
	for _, p := range slices.Clone(mx.queue) {
		if r := p.blocked; r != nil && r.limit > 0 && r.sent+r.limit <= mx.m.now {
			p.blocked = nil
			mx.leave(p, "timeout")
			mx.expect(r, "timeout")
		}
	}
}

func (mx *mutex) tick() {
	now := mx.m.now
	if mx.held != nil && mx.held.end() <= now {
		mx.vacate("expired", "", true)
	}
	if mx.reserved != nil && mx.until <= now {
		mx.endReservation()
		mx.lapsed = true
	}
	if now >= mx.m.recovered {
		mx.recovering = false
	}
	mx.endRecovery()
	mx.unblockResumed(false)
	mx.handOff()
	for _, p := range slices.Clone(mx.queue) {
		if p.blocked == nil && p.lapse <= now {
			mx.remove(p)
			mx.event("left", p.who, nil, "lapsed")
		}
	}
}

func (mx *mutex) endReservation() {
	mx.freed, mx.reserved = cmp.Or(mx.last, mx.reserved.who), nil
	mx.version++
}

// announce ends a step. If the mutex is now free and not reserved, all subscribers must get a
// broadcast.
func (mx *mutex) announce() {
	open := mx.held == nil && mx.reserved == nil
	for i := range mx.broadcasts {
		if s := &mx.broadcasts[i]; s.lapse && s.at == mx.m.now && !open {
			s.maybe = true
		}
	}
	if mx.freed != "" && open {
		mx.broadcasts = append(mx.broadcasts, broadcast{mx.m.now, "released@@" + mx.freed, mx.state(), mx.lapsed, false})
	}
	mx.freed, mx.lapsed = "", false
}

// endRecovery renews the lease of a recovered owner that had to queue for its renewal.
func (mx *mutex) endRecovery() {
	if mx.held == nil || !mx.held.former || mx.m.now < mx.m.recovered {
		return
	}
	p := mx.find(mx.held.owner)
	if p == nil {
		return
	}
	r := p.blocked
	mx.remove(p)
	if r != nil { // a polling owner got its reply already
		mx.renew(p.ttl, p.transition)
		mx.held.session = p.session
		mx.held.waiter, mx.held.from = r, p
		mx.expect(r, "renewed")
	}
}

func (mx *mutex) vacate(kind, reason string, forced bool) {
	t := mx.held
	mx.held, mx.last, mx.freed = nil, t.owner, ""
	if kind != "expired" {
		mx.freed = t.owner
	}
	for _, p := range mx.queue {
		p.notified = false
	}
	mx.changed(forced || t.former)
	mx.event(kind, t.owner, t, reason)
	if r := t.waiter; r == nil || kind == "released" || mx.answered(r) {
		t.spent = true
	} else {
		mx.resume(t.from, r)
	}
}

// answered reports whether the server has read the outcome of a granted wait. The server reads it
// when the grant is durable, when the wait times out, and when the server stops.
func (mx *mutex) answered(r *request) bool {
	w, now := mx.m.w, mx.m.now
	switch {
	// Another command of the same batch ended the tenure, and waiters wake up only after a batch.
	case r.due.at == now:
		return false
	case len(r.got) > 0, r.limit > 0 && r.sent+r.limit <= now, w.stopping:
		return true
	}
	return mx.replyTime(r.due) <= now
}

// replyTime returns when the server reports a grant.
func (mx *mutex) replyTime(d *outcome) time.Duration {
	w := mx.m.w
	s := w.span(mx, d.at, d.state)
	if w.durability == async && s.from != s.until && !w.unclear {
		// The model cannot know which changes the store had not written yet.
		w.count("unclear")
		w.unclear = true
	}
	return s.from
}

// unblockResumed lets the queue reach re-queued waiters again, once the server has noticed that
// their grant expired.
func (mx *mutex) unblockResumed(batchOver bool) {
	for _, p := range mx.queue {
		if p.missed != nil && mx.replyTime(p.missed) <= mx.m.now && (batchOver || !mx.inBatch(p)) {
			p.missed = nil
		}
	}
}

// inBatch reports whether the present batch of requests made the grant that a waiter missed. It
// takes each grant of the present instant for a grant of the batch.
func (mx *mutex) inBatch(p *entry) bool { return p.missed.at == mx.m.now }

// resume puts a waiter back into the queue. No handoff reaches the waiter before the server notices
// its expired grant.
func (mx *mutex) resume(p *entry, r *request) {
	p.blocked, p.notified, p.missed, r.due = r, false, r.due, nil
	i, _ := slices.BinarySearchFunc(mx.queue, p, func(a, b *entry) int { return a.order - b.order })
	mx.queue = slices.Insert(mx.queue, i, p)
	mx.event("queued", p.who, nil, "")
	mx.m.w.count("waits on")
}

func (mx *mutex) grant(who string, ttl, transition time.Duration, session *wire, reason string) {
	mx.ranks++
	t := &tenure{rank: mx.ranks, owner: who, began: mx.m.now, session: session, floor: mx.m.w.maxToken}
	mx.held, mx.reserved = t, nil
	var r *request
	p := mx.find(who)
	if p != nil {
		r = p.blocked
		mx.remove(p)
	}
	mx.renew(ttl, transition)
	mx.event("acquired", who, t, reason)
	mx.broadcasts = append(mx.broadcasts, broadcast{mx.m.now, "acquired@@" + who, mx.state(), false, false})
	if r != nil {
		if reason == "handoff" {
			t.waiter, t.from = r, p
		}
		mx.expect(r, "acquired")
	}
}

func (mx *mutex) renew(ttl, transition time.Duration) {
	mx.held.windows = windows{mx.m.now, mx.m.w.wallMillis(), ttl, transition}
	mx.changed(false)
}

// handOff gives a free mutex to the first reachable waiter.
func (mx *mutex) handOff() {
	if mx.held != nil || mx.reserved != nil || mx.m.now < mx.m.recovered {
		return
	}
	for _, p := range mx.queue {
		if p.missed != nil {
			continue
		}
		if p.blocked != nil {
			mx.grant(p.who, p.ttl, p.transition, p.session, "handoff")
			return
		}
		to := mx.m.w.subscribers(mx, p.who)
		if p.notified || len(to) == 0 {
			continue
		}
		p.notified = true
		mx.version++
		mx.handoffs = append(mx.handoffs, handoffNotice{mx.m.now, p.who, mx.last, to, mx.state()})
		if mx.m.window > 0 {
			mx.reserved, mx.until = p, mx.m.now+mx.m.window
			p.lapse = max(p.lapse, mx.until)
			return
		}
	}
}

func (mx *mutex) leave(p *entry, reason string) {
	r := p.blocked
	mx.remove(p)
	mx.event("left", p.who, nil, reason)
	if r != nil {
		mx.expect(r, "timeout")
	}
	if mx.reserved == p {
		mx.endReservation()
		mx.handOff()
	}
}

func (mx *mutex) lapse() time.Duration {
	from := mx.m.now
	if mx.held != nil {
		from = max(from, mx.held.end())
	}
	return from + mx.m.grace
}

// open reports whether the contender may acquire the mutex now.
func (mx *mutex) open(who string) bool {
	return mx.held == nil && mx.m.now >= mx.m.recovered && (mx.reserved == nil || mx.reserved.who == who)
}

func (mx *mutex) owns(who string, token uint64) bool {
	return mx.held != nil && mx.held.owner == who && (token == 0 || mx.held.token == token)
}

// apply executes a request at the present instant. It sets the expected outcome, unless the request
// has to wait.
func (mx *mutex) apply(r *request) {
	defer mx.announce()
	mx.elapse()
	switch r.kind {
	case reqAcquire:
		mx.acquire(r)
	case reqGuard:
		if !mx.owns(r.who, r.token) {
			mx.expect(r, "lost")
			return
		}
		mx.held.waiter = nil
		mx.renew(r.ttl, r.transition)
		mx.expect(r, "renewed")
	case reqRelease:
		owned := mx.owns(r.who, r.token)
		if owned {
			mx.vacate("released", "", false)
		}
		if p := mx.find(r.who); p != nil && r.token == 0 {
			mx.leave(p, "left")
		}
		mx.handOff()
		mx.expect(r, yes(owned))
	case reqBreak:
		owned := mx.held != nil
		if owned {
			mx.vacate("broken", r.reason, true)
			mx.handOff()
		}
		mx.expect(r, yes(owned))
	case reqCheck:
		mx.expect(r, yes(mx.held != nil && mx.held.token != 0 && mx.held.token == r.token))
	case reqSet:
		if !mx.open(r.who) {
			mx.expect(r, "nil")
			return
		}
		mx.grant(r.who, r.ttl, 0, nil, "")
		mx.expect(r, "OK")
	case reqDelete:
		owned := mx.owns(r.who, 0)
		if owned {
			mx.vacate("released", "deleted", true)
			mx.handOff()
		}
		mx.expect(r, yes(owned))
	case reqWatch:
		r.wire.watched[mx] = mx.version
		mx.expect(r, "")
	case reqExec:
		seen, watches := r.wire.watched[mx]
		delete(r.wire.watched, mx)
		switch {
		case watches && seen != mx.version:
			mx.expect(r, "aborted")
		case mx.open(r.who):
			mx.grant(r.who, r.ttl, 0, nil, "")
			mx.expect(r, "OK")
		default:
			mx.expect(r, "nil")
		}
	case reqSubscribe:
		if !slices.Contains(r.wire.channels, mx) {
			r.wire.channels = append(r.wire.channels, mx)
		}
		if p := mx.find(r.who); p != nil && p.blocked == nil {
			p.notified = false
			if mx.reserved == p {
				mx.endReservation()
			}
			mx.handOff()
		}
		mx.expect(r, "")
	default: // reads
		mx.expect(r, "")
	}
}

func yes(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func (mx *mutex) acquire(r *request) {
	var session *wire
	if r.session {
		session = r.wire
	}
	switch {
	case mx.owns(r.who, 0) && mx.m.now >= mx.m.recovered:
		mx.held.waiter, mx.held.session = nil, session
		mx.renew(r.ttl, r.transition)
		mx.expect(r, "renewed")
		return
	case mx.open(r.who):
		mx.grant(r.who, r.ttl, r.transition, session, "")
		mx.expect(r, "acquired")
		return
	case r.noQueue:
		mx.expect(r, "busy")
		return
	}
	p := mx.find(r.who)
	if p == nil {
		if mx.held == nil && mx.reserved == nil && len(mx.queue) == 0 {
			mx.last = "" // the server has forgotten a free mutex without waiters
		}
		mx.arrivals++
		p = &entry{who: r.who, order: mx.arrivals, since: mx.m.now}
		mx.queue = append(mx.queue, p)
		mx.event("queued", r.who, nil, "")
	}
	p.missed = nil
	if r.wait || p.blocked == nil {
		p.ttl, p.transition, p.session = r.ttl, r.transition, session
	}
	switch {
	case r.wait:
		old := p.blocked
		p.blocked, p.notified = r, false
		if old != nil {
			mx.expect(old, "queued")
		}
	default:
		if p.blocked == nil {
			p.lapse = mx.lapse()
		}
		mx.expect(r, "queued")
	}
}

// disconnected is the step after the server has noticed the end of a wire with a waiting request.
// The waiter becomes a polling waiter. If the waiter has a grant without a reply, the mutex goes to
// the next waiter.
func (mx *mutex) disconnected(r *request) {
	defer mx.announce()
	mx.elapse()
	for _, p := range mx.queue {
		if p.blocked == r {
			p.blocked, p.missed = nil, nil
			p.lapse = mx.m.now + mx.m.grace
			mx.handOff()
			return
		}
	}
	if mx.held != nil && mx.held.waiter == r && !mx.held.former {
		mx.vacate("released", "waiter gone", true)
		mx.handOff()
	}
}

// closed is the step after the server has closed a wire. It ends the wire's session.
func (mx *mutex) closed(k *wire) {
	defer mx.announce()
	mx.elapse()
	if mx.held != nil && mx.held.session == k {
		mx.vacate("released", "session closed", true)
		mx.handOff()
	}
}

type outcome struct {
	at     time.Duration
	status string
	state  int // index of the mutex's state that the reply reports
	record shown
}

// shown is the part of a mutex that a reply shows.
type shown struct {
	held     *tenure
	lease    windows
	kept     time.Duration // when the reservation of a free mutex ends; 0 = none
	position int
	queue    []entry
}

// expect sets the expected outcome of a request, unless the request has one.
func (mx *mutex) expect(r *request, status string) {
	s := shown{position: mx.position(r.who)}
	switch {
	case mx.held != nil:
		s.held, s.lease = mx.held, mx.held.windows
	case mx.m.now < mx.m.recovered:
		s.kept = mx.m.recovered
	case mx.reserved != nil:
		s.kept = mx.until
	}
	if r.kind == reqQueue || r.kind == reqOwner {
		for _, p := range mx.queue {
			s.queue = append(s.queue, *p)
		}
	}
	if r.due == nil {
		r.due = &outcome{mx.m.now, status, mx.state(), s}
	}
	if r.kind == reqHistory {
		r.due.state = mx.noted // the history shows no renewals, so later states do not matter
	}
}
