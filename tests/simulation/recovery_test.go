package simulation

import "time"

// audit reads every mutex from a restarted server, and compares the replies with the model's states
// before the restart. Each mutex must be in the newest state that a client knows, or in a later
// one.
func (w *world) audit(delay time.Duration, reboot bool) {
	m := w.model
	now := w.now()
	m.now = now
	m.recovered = 0
	if delay > 0 {
		m.recovered = now + delay
	}
	for _, mx := range m.mutexes {
		mx.held, mx.queue, mx.reserved, mx.events, mx.handoffs, mx.broadcasts, mx.freed, mx.odd = nil, nil, nil, nil, nil, nil, "", ""
		mx.version++
	}
	w.onlooker = w.dial("onlooker", 3)
	w.raw(w.onlooker, "PSUBSCRIBE", "simba-events:{*", "simba:{*}")
	auditor := w.dial("auditor", 2)
	for _, mx := range m.mutexes {
		found := w.raw(auditor, "SIMBA.OWNER", mx.name)
		if !w.broken() {
			w.recover(mx, found, delay, reboot)
		}
	}
	w.lastAnnounced = w.lastSeq
	w.hangUp(auditor)
	w.lulls.rest()
	w.takeIn()
}

// raw sends a command, and returns the first reply or push. No other client may act meanwhile.
func (w *world) raw(k *wire, words ...string) any {
	w.lulls.rest()
	w.takeIn()
	if !w.write(k, command(words...)) {
		w.violate(ruleLiveness, "the server does not take %q", words)
		return nil
	}
	w.lulls.rest()
	for _, h := range w.inbox.take() {
		if h.wire == k && h.what == heard {
			return h.value
		}
	}
	w.violate(ruleLiveness, "the server does not answer %q", words)
	return nil
}

// recover judges the state of a mutex that the server has recovered, and sets the model to it.
func (w *world) recover(mx *mutex, found any, delay time.Duration, reboot bool) {
	now := w.now()
	before, reported := mx.states, mx.reported
	if w.durability == memory || len(before) == 0 {
		if found != nil {
			w.violate(ruleDurable, "%s: %v is the owner after a restart, but no lease may survive", mx.name, record(found)["owner"])
		}
		mx.restart(nil)
		return
	}
	switch {
	case w.orderly:
		reported = len(before) - 1
	case w.durability == async: // the crash may have undone states that are not forced
		for reported > 0 && !before[reported].forced {
			reported--
		}
	}
	at := -1
	why := ruleDurable
	for i := len(before) - 1; i >= 0; i-- {
		s := before[i]
		if reboot && s.held != nil {
			s.lease.start, s.lease.wall = now, w.wallMillis()
		}
		ok, near := w.isLeft(s, found)
		// A lease and its renewal may be equal in milliseconds. Then the exact start in the store
		// decides.
		exact := s.held == nil || s.lease.start == w.stored[mx.name]
		if ok && (at < 0 || exact) {
			before[i] = s
			at = i
		}
		if ok && exact {
			break
		}
		if near && i >= reported {
			why = ruleClock
		}
	}
	if at < reported {
		w.violate(why, "%s had %d states; a client knows state %d, but the server recovered state %d (-1 = none) and reports the owner %v", mx.name, len(before), reported, at, found)
		return
	}
	// If the crash lost a lease that a client knows, the lease must end before the first new grant.
	for i := at + 1; i <= mx.reported; i++ {
		if s := before[i]; s.held != nil && s.lease.end() > now+delay {
			w.violate(ruleDurable, "%s: the crash lost a lease of %s until %v, but the recovery delay ends at %v", mx.name, s.held.owner, s.lease.end(), now+delay)
			return
		}
	}
	if found == nil {
		mx.restart(nil)
		return
	}
	t := before[at].held
	t.windows = before[at].lease
	t.former, t.session, t.waiter = true, nil, nil
	if token := record(found).Number("token"); w.bind(mx, t, uint64(token)) {
		mx.restart(t)
	}
	w.logf(nil, now, "%s is left to %s #%d until %v", mx.name, t.owner, t.rank, t.end())
}

// restart begins a new life of the server with the recovered tenure; nil = the mutex is free.
func (mx *mutex) restart(t *tenure) {
	mx.held, mx.reported, mx.noted, mx.recovering = t, 0, 0, true
	mx.states, mx.last = nil, ""
	mx.changed(true)
}

// isLeft reports whether the server's record of a mutex shows the state s. near means that at most
// the times differ.
func (w *world) isLeft(s state, found any) (ok, near bool) {
	now := w.now()
	if s.held == nil || s.lease.end() <= now {
		return found == nil, false
	}
	if found == nil {
		return false, true
	}
	rec := record(found)
	token, _ := rec["token"].(int64)
	if rec["owner"] != s.held.owner || s.held.token != 0 && s.held.token != uint64(token) || uint64(token) <= s.held.floor {
		return false, false
	}
	return rec["ttl"] == left(s.lease.ttlEnd(), now) && rec["transition"] == left(s.lease.end(), now) &&
		rec["acquired_at"] == s.lease.wall, true
}

// finish disconnects all clients. It then checks that the server has freed all mutexes, leases and
// queue entries.
func (w *world) finish() {
	if !w.up {
		return
	}
	w.logf(nil, w.now(), "all clients leave")
	for _, k := range w.wires {
		if k != w.onlooker && !k.hungUp {
			w.hangUp(k)
			w.sleep(1)
		}
	}
	for range 10_000 {
		next, ok := w.model.deadline()
		if !ok || w.broken() {
			break
		}
		w.sleep(next - w.now())
	}
	w.sleep(time.Second)
	if w.fatal.Load() != 0 {
		return
	}
	if w.broken() {
		return
	}
	if s := w.engine.Stats(); s.Held != 0 || s.Mutexes != 0 || s.Blocked != 0 || s.Polling != 0 {
		w.violate(ruleNothingLeft, "after all clients left, the server has %d mutexes, %d owners, %d blocked waiters and %d polling waiters", s.Mutexes, s.Held, s.Blocked, s.Polling)
		return
	}
	last := w.dial("last", 2)
	for _, mx := range w.model.mutexes {
		for _, kind := range []reqKind{reqAcquire, reqRelease} {
			r := &request{kind: kind, mx: mx, who: "last", ttl: time.Hour, noQueue: true}
			w.send(last, r)
			w.sleep(w.durableBy(w.now()) - w.now())
			if w.fatal.Load() != 0 {
				return
			}
			if !w.broken() && len(r.got) == 0 {
				w.violate(ruleLiveness, "at the end no client can %s %s", r.name(), mx.name)
			}
			if w.broken() {
				return
			}
		}
	}
	w.hangUp(last)
	w.sleep(time.Second)
}

func (m *model) deadline() (d time.Duration, ok bool) {
	for _, mx := range m.mutexes {
		if at, is := mx.deadline(); is && (!ok || at < d) {
			d, ok = at, true
		}
	}
	return d, ok
}

func (w *world) sleep(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
	w.lulls.rest()
	w.takeIn()
}
