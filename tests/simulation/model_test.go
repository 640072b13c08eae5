package simulation

import (
	"cmp"
	"slices"
	"time"
)

// The model is what the design says of mutexes, told a second time and as plainly as possible:
// lists instead of indexes, and every instant exact. It is fed with what clients send, at the
// instant at which they send it, and with what becomes of their connections; and it says what each
// of them must be told. It knows nothing of the server.

// tenure is an unbroken time of one owner.
type tenure struct {
	rank    int // of the mutex's tenures, from 1
	owner   string
	token   uint64 // 0 = nobody was told yet
	floor   uint64 // the token is larger than this one
	began   time.Duration
	session *wire
	former  bool     // it began in an earlier life of the server
	untold  *request // the blocked one that it was granted to, until its owner renews
	from    *place   // that of untold before
	spent   bool     // it is over, and who waited for it does not wait for another
	windows
}

// windows are a lease.
type windows struct {
	start           time.Duration
	wall            int64 // the start, in Unix milliseconds
	ttl, transition time.Duration
}

func (w windows) ttlEnd() time.Duration { return w.start + w.ttl }
func (w windows) end() time.Duration    { return w.start + w.ttl + w.transition }

// place is a contender's in a queue.
type place struct {
	who             string
	order           int      // of its arrival
	blocked         *request // nil = it polls
	ttl, transition time.Duration
	session         *wire
	since, lapse    time.Duration
	told            bool     // polling: it has had its turn since the mutex became free
	missed          *outcome // blocked: a grant that was over before it was told, and has yet to be; nil = none
}

// state is one that a mutex was in.
type state struct {
	at     time.Duration
	held   *tenure // nil = free
	lease  windows
	forced bool // a crash must not undo it in any mode
}

// mutex is the model of one.
type mutex struct {
	m        *model
	name     string
	held     *tenure
	ranks    int
	arrivals int
	queue    []*place
	reserved *place // whose turn it is, while the mutex is free
	until    time.Duration
	silent   bool    // the quiet time has not ended yet
	last     string  // who owned it before it became free
	states   []state // since the server's start
	noted    int     // index of the last state when something came into the history
	told     int     // index of the last state that anyone was told of
	version  int     // for WATCH
	events   []event // to come on the onlooker's wire, in order
	turns    []turn  // to come on the subscribers' wires
	said     []said  // to come on the onlooker's wire from the mutex' own channel, in order
	odd      string  // a notice that came there and should not: the event that follows names the rule, if there is one
	freed    string  // in this step a tenure of that owner ended before its time, or a turn after it; "" = none
	lapsed   bool    // it was a turn whose time was over
}

// said is a notice on the mutex' own channel.
type said struct {
	at      time.Duration
	payload string
	state   int
	lapse   bool // a turn's time was over
	maybe   bool // a request at that very instant was faster, or not
}

// event is one that must be announced.
type event struct {
	at        time.Duration
	wall      int64
	kind, who string
	tenure    *tenure // nil for those of the queue
	reason    string
	state     int
}

// turn is a notice that must reach a polling waiter.
type turn struct {
	at    time.Duration
	who   string
	last  string
	to    []*wire
	state int // of the mutex
}

// model is all mutexes of a server.
type model struct {
	w       *world
	now     time.Duration
	mutexes []*mutex
	window  time.Duration
	grace   time.Duration
	quiet   time.Duration // nobody new is granted anything before it
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

func (mx *mutex) find(who string) *place {
	for _, p := range mx.queue {
		if p.who == who {
			return p
		}
	}
	return nil
}

func (mx *mutex) position(who string) int {
	return 1 + slices.IndexFunc(mx.queue, func(p *place) bool { return p.who == who })
}

func (mx *mutex) remove(p *place) {
	mx.queue = slices.DeleteFunc(mx.queue, func(x *place) bool { return x == p })
}

// advance lets time pass, to t: everything happens at its own instant, in order.
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
		next.pass()
		next.announce()
	}
	m.now = max(m.now, t)
}

// deadline is the next instant at which something happens by itself.
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
			if t := mx.tellable(p.missed); t > mx.m.now || !mx.inBatch(p) {
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
	if mx.silent && len(mx.queue) > 0 {
		at(mx.m.quiet)
	}
	return d, ok
}

// pass is what time does at one instant: what begins at it, then what ends.
func (mx *mutex) pass() {
	mx.tick()
	for _, p := range slices.Clone(mx.queue) {
		if r := p.blocked; r != nil && r.limit > 0 && r.sent+r.limit <= mx.m.now {
			p.blocked = nil
			mx.leave(p, "timeout")
			mx.settle(r, "timeout")
		}
	}
}

func (mx *mutex) tick() {
	now := mx.m.now
	if mx.held != nil && mx.held.end() <= now {
		mx.vacate("expired", "", true)
	}
	if mx.reserved != nil && mx.until <= now {
		mx.endTurn()
		mx.lapsed = true
	}
	if now >= mx.m.quiet {
		mx.silent = false
	}
	mx.endQuiet()
	mx.rouse(false)
	mx.handOn()
	for _, p := range slices.Clone(mx.queue) {
		if p.blocked == nil && p.lapse <= now {
			mx.remove(p)
			mx.event("left", p.who, nil, "lapsed")
		}
	}
}

// endTurn ends the turn of the waiter for whom the mutex is kept.
func (mx *mutex) endTurn() {
	mx.freed, mx.reserved = cmp.Or(mx.last, mx.reserved.who), nil
	mx.version++
}

// announce ends a step: what it has left free for all is said to all.
func (mx *mutex) announce() {
	open := mx.held == nil && mx.reserved == nil
	for i := range mx.said {
		if s := &mx.said[i]; s.lapse && s.at == mx.m.now && !open {
			s.maybe = true
		}
	}
	if mx.freed != "" && open {
		mx.said = append(mx.said, said{mx.m.now, "released@@" + mx.freed, mx.state(), mx.lapsed, false})
	}
	mx.freed, mx.lapsed = "", false
}

// endQuiet grants a recovered owner the renewal that it had to queue for.
func (mx *mutex) endQuiet() {
	if mx.held == nil || !mx.held.former || mx.m.now < mx.m.quiet {
		return
	}
	p := mx.find(mx.held.owner)
	if p == nil {
		return
	}
	r := p.blocked
	mx.remove(p)
	if r != nil { // a poll was answered, and is over
		mx.renew(p.ttl, p.transition)
		mx.held.session = p.session
		mx.held.untold, mx.held.from = r, p
		mx.settle(r, "renewed")
	}
}

func (mx *mutex) vacate(kind, reason string, forced bool) {
	t := mx.held
	mx.held, mx.last, mx.freed = nil, t.owner, ""
	if kind != "expired" {
		mx.freed = t.owner
	}
	for _, p := range mx.queue {
		p.told = false
	}
	mx.changed(forced || t.former)
	mx.event(kind, t.owner, t, reason)
	if r := t.untold; r == nil || kind == "released" || mx.answered(r) {
		t.spent = true
	} else {
		mx.resume(t.from, r)
	}
}

// answered reports whether the server has looked what came of a wait that it has granted the mutex to: when it could tell,
// when the time of the wait ran out, or when it was told to stop.
func (mx *mutex) answered(r *request) bool {
	w, now := mx.m.w, mx.m.now
	switch {
	case r.due.at == now: // over by another command of the same batch, at whose end it will be woken
		return false
	case len(r.got) > 0, r.limit > 0 && r.sent+r.limit <= now, w.stopping:
		return true
	}
	return mx.tellable(r.due) <= now
}

// tellable is when the server tells of a grant.
func (mx *mutex) tellable(d *outcome) time.Duration {
	w := mx.m.w
	s := w.span(mx, d.at, d.state)
	if w.durability == async && s.from != s.until && !w.unclear {
		// The store alone knows what it had to hold back.
		w.count("unclear")
		w.unclear = true
	}
	return s.from
}

// rouse gives those a turn who wait on and have been woken.
func (mx *mutex) rouse(batchOver bool) {
	for _, p := range mx.queue {
		if p.missed != nil && mx.tellable(p.missed) <= mx.m.now && (batchOver || !mx.inBatch(p)) {
			p.missed = nil
		}
	}
}

// inBatch reports whether a grant that a place missed is of the present instant, and so of the batch that a client has just sent.
func (mx *mutex) inBatch(p *place) bool { return p.missed.at == mx.m.now }

// resume gives a wait its place back. It has no turn before it was woken for what it missed.
func (mx *mutex) resume(p *place, r *request) {
	p.blocked, p.told, p.missed, r.due = r, false, r.due, nil
	i, _ := slices.BinarySearchFunc(mx.queue, p, func(a, b *place) int { return a.order - b.order })
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
	mx.said = append(mx.said, said{mx.m.now, "acquired@@" + who, mx.state(), false, false})
	if r != nil {
		if reason == "handoff" {
			t.untold, t.from = r, p
		}
		mx.settle(r, "acquired")
	}
}

func (mx *mutex) renew(ttl, transition time.Duration) {
	mx.held.windows = windows{mx.m.now, mx.m.w.wallMillis(), ttl, transition}
	mx.changed(false)
}

// handOn gives a free mutex to the first reachable waiter.
func (mx *mutex) handOn() {
	if mx.held != nil || mx.reserved != nil || mx.m.now < mx.m.quiet {
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
		if p.told || len(to) == 0 {
			continue
		}
		p.told = true
		mx.version++
		mx.turns = append(mx.turns, turn{mx.m.now, p.who, mx.last, to, mx.state()})
		if mx.m.window > 0 {
			mx.reserved, mx.until = p, mx.m.now+mx.m.window
			p.lapse = max(p.lapse, mx.until)
			return
		}
	}
}

func (mx *mutex) leave(p *place, reason string) {
	r := p.blocked
	mx.remove(p)
	mx.event("left", p.who, nil, reason)
	if r != nil {
		mx.settle(r, "timeout")
	}
	if mx.reserved == p {
		mx.endTurn()
		mx.handOn()
	}
}

func (mx *mutex) lapse() time.Duration {
	from := mx.m.now
	if mx.held != nil {
		from = max(from, mx.held.end())
	}
	return from + mx.m.grace
}

// free reports whether who may have the mutex now.
func (mx *mutex) open(who string) bool {
	return mx.held == nil && mx.m.now >= mx.m.quiet && (mx.reserved == nil || mx.reserved.who == who)
}

func (mx *mutex) owns(who string, token uint64) bool {
	return mx.held != nil && mx.held.owner == who && (token == 0 || mx.held.token == token)
}

// apply does what a request asks for at the present instant, and settles it unless it waits.
func (mx *mutex) apply(r *request) {
	defer mx.announce()
	mx.pass()
	switch r.kind {
	case reqAcquire:
		mx.acquire(r)
	case reqGuard:
		if !mx.owns(r.who, r.token) {
			mx.settle(r, "lost")
			return
		}
		mx.held.untold = nil
		mx.renew(r.ttl, r.transition)
		mx.settle(r, "renewed")
	case reqRelease:
		owned := mx.owns(r.who, r.token)
		if owned {
			mx.vacate("released", "", false)
		}
		if p := mx.find(r.who); p != nil && r.token == 0 {
			mx.leave(p, "left")
		}
		mx.handOn()
		mx.settle(r, yes(owned))
	case reqBreak:
		owned := mx.held != nil
		if owned {
			mx.vacate("broken", r.reason, true)
			mx.handOn()
		}
		mx.settle(r, yes(owned))
	case reqCheck:
		mx.settle(r, yes(mx.held != nil && mx.held.token != 0 && mx.held.token == r.token))
	case reqSet:
		if !mx.open(r.who) {
			mx.settle(r, "nil")
			return
		}
		mx.grant(r.who, r.ttl, 0, nil, "")
		mx.settle(r, "OK")
	case reqDelete:
		owned := mx.owns(r.who, 0)
		if owned {
			mx.vacate("released", "deleted", true)
			mx.handOn()
		}
		mx.settle(r, yes(owned))
	case reqWatch:
		r.wire.watched[mx] = mx.version
		mx.settle(r, "")
	case reqExec:
		seen, watches := r.wire.watched[mx]
		delete(r.wire.watched, mx)
		switch {
		case watches && seen != mx.version:
			mx.settle(r, "aborted")
		case mx.open(r.who):
			mx.grant(r.who, r.ttl, 0, nil, "")
			mx.settle(r, "OK")
		default:
			mx.settle(r, "nil")
		}
	case reqSubscribe:
		if !slices.Contains(r.wire.channels, mx) {
			r.wire.channels = append(r.wire.channels, mx)
		}
		if p := mx.find(r.who); p != nil && p.blocked == nil {
			p.told = false
			if mx.reserved == p {
				mx.endTurn()
			}
			mx.handOn()
		}
		mx.settle(r, "")
	default: // those that only read
		mx.settle(r, "")
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
	case mx.owns(r.who, 0) && mx.m.now >= mx.m.quiet:
		mx.held.untold, mx.held.session = nil, session
		mx.renew(r.ttl, r.transition)
		mx.settle(r, "renewed")
		return
	case mx.open(r.who):
		mx.grant(r.who, r.ttl, r.transition, session, "")
		mx.settle(r, "acquired")
		return
	case r.noQueue:
		mx.settle(r, "busy")
		return
	}
	p := mx.find(r.who)
	if p == nil {
		if mx.held == nil && mx.reserved == nil && len(mx.queue) == 0 {
			mx.last = "" // of a mutex that is free and that nobody waits for, nothing is remembered
		}
		mx.arrivals++
		p = &place{who: r.who, order: mx.arrivals, since: mx.m.now}
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
		p.blocked, p.told = r, false
		if old != nil {
			mx.settle(old, "queued")
		}
	default:
		if p.blocked == nil {
			p.lapse = mx.lapse()
		}
		mx.settle(r, "queued")
	}
}

// gone tells that the server has met the end of a wire on which a request waits, or could not be
// answered: the waiter polls from now on, or what it was granted goes to the next.
func (mx *mutex) gone(r *request) {
	defer mx.announce()
	mx.pass()
	for _, p := range mx.queue {
		if p.blocked == r {
			p.blocked, p.missed = nil, nil
			p.lapse = mx.lapse()
			mx.handOn()
			return
		}
	}
	if mx.held != nil && mx.held.untold == r && !mx.held.former {
		mx.vacate("released", "waiter gone", true)
		mx.handOn()
	}
}

// closed tells that the server has closed a wire: its session ends.
func (mx *mutex) closed(k *wire) {
	defer mx.announce()
	mx.pass()
	if mx.held != nil && mx.held.session == k {
		mx.vacate("released", "session closed", true)
		mx.handOn()
	}
}

// outcome is what a request must be told.
type outcome struct {
	at     time.Duration
	status string
	state  int // of the mutex, on which it rests
	record shown
}

// shown is a mutex as it was seen.
type shown struct {
	held     *tenure
	lease    windows
	kept     time.Duration // free but not to be had, until then
	position int
	queue    []place
}

// settle notes what the request must be told.
func (mx *mutex) settle(r *request, status string) {
	s := shown{position: mx.position(r.who)}
	switch {
	case mx.held != nil:
		s.held, s.lease = mx.held, mx.held.windows
	case mx.m.now < mx.m.quiet:
		s.kept = mx.m.quiet
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
		r.due.state = mx.noted // it tells nothing of renewals
	}
}
