package engine

import (
	"math"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
)

// never is the deadline of a lease that does not end.
const never = simba.Instant(math.MaxInt64)

// mutex is the state of one mutex that is in memory: see the invariants of the package. There may be
// millions of mutexes, so the struct is small: 96 bytes and one string.
type mutex struct {
	label      string        // the name and the owner's id, in one allocation
	token      uint64        // token of the present tenure; 0 = free
	acquired   simba.Instant // start of the present lease
	acquiredAt int64         // start of the present lease, in Unix milliseconds
	startedAt  int64         // start of the present tenure, in Unix milliseconds
	replyAfter simba.Seq     // a reply about the mutex waits for the changes up to this one
	extra      *extra        // nil = empty
	next       *mutex        // in the same bucket of the table
	hash       uint64
	ttl        uint32 // milliseconds, unless extra.long is set
	transition uint32 // milliseconds
	slot       int32  // index in the shard's deadlines; -1 = not there
	nameLen    uint32
}

// extra is the state that only some mutexes have: a queue, a reservation, and rare parts of a
// lease.
type extra struct {
	queue
	session     uint64        // the session that the lease is bound to; 0 = none
	unconfirmed *ticket       // ticket of an owner that may not know of its tenure yet; nil = none
	reserved    *entry        // the polling waiter with the reservation; nil = none
	until       simba.Instant // when the reservation ends
	last        string        // the owner whose tenure ended last

	// See openToOutsiders.
	sinceOpen int           // tenures that ended since the mutex was last open
	outsider  simba.Instant // when a script last asked in vain for an outsider; 0 = none counts
	open      simba.Instant // until when the free mutex is open to outsiders

	// The fields below belong to the present tenure.
	long   time.Duration // a TTL that is too long for mutex.ttl; 0 = mutex.ttl has it
	fields []simba.Field // fields of a lock key that is a hash
	weight int           // bytesOf(fields)
}

// longTTL is the longest TTL that mutex.ttl can store.
const longTTL = time.Duration(math.MaxUint32) * time.Millisecond

func newMutex(name string, hash uint64) *mutex {
	return &mutex{label: name, nameLen: uint32(len(name)), hash: hash, slot: -1}
}

// setOwner gives the mutex another owner; "" = none. The name is a substring of the old label. So
// setOwner copies the name if it would keep a long label in memory.
func (m *mutex) setOwner(owner string) {
	name := m.name()
	if owner == "" && len(m.owner()) > simba.MaxContenderLen {
		name = strings.Clone(name)
	}
	m.label = name + owner
}

func (m *mutex) name() string  { return m.label[:m.nameLen] }
func (m *mutex) owner() string { return m.label[m.nameLen:] }
func (m *mutex) owned() bool   { return m.token != 0 }

// isAvailable reports whether the mutex is free and not reserved.
func (m *mutex) isAvailable() bool {
	return !m.owned() && (m.extra == nil || m.extra.reserved == nil)
}

// ttlLen returns the length of the TTL window; simba.Endless = without end.
func (m *mutex) ttlLen() time.Duration {
	if m.extra != nil && m.extra.long != 0 {
		return m.extra.long
	}
	return time.Duration(m.ttl) * time.Millisecond
}

func (m *mutex) ttlEnd() simba.Instant {
	d := m.ttlLen()
	if d == simba.Endless {
		return never
	}
	return m.acquired.Add(d)
}

// end returns when the lease ends.
func (m *mutex) end() simba.Instant {
	end := m.ttlEnd()
	if end == never {
		return never
	}
	return end.Add(time.Duration(m.transition) * time.Millisecond)
}

func (m *mutex) fields() []simba.Field {
	if m.extra == nil {
		return nil
	}
	return m.extra.fields
}

func (m *mutex) lease() simba.Lease {
	return simba.Lease{
		Mutex: m.name(), Owner: m.owner(), Token: m.token,
		Acquired: m.acquired, AcquiredAt: m.acquiredAt,
		TTL:        m.ttlLen(),
		Transition: time.Duration(m.transition) * time.Millisecond,
		StartedAt:  m.startedAt,
		Session:    m.extra != nil && m.extra.session != 0,
		Fields:     m.fields(),
	}
}

func (m *mutex) load(l simba.Lease) {
	m.label = l.Mutex + l.Owner
	m.token = l.Token
	m.acquired, m.acquiredAt, m.startedAt = l.Acquired, l.AcquiredAt, l.StartedAt
	m.setWindows(l.TTL, l.Transition)
	m.setFields(l.Fields)
}

func (m *mutex) setWindows(ttl, transition time.Duration) {
	switch {
	case ttl > longTTL:
		m.ttl, m.makeExtra().long = 0, ttl
	case m.extra != nil:
		m.extra.long = 0
		fallthrough
	default:
		m.ttl = uint32(ttl / time.Millisecond)
	}
	m.transition = uint32(transition / time.Millisecond)
}

func (m *mutex) setFields(fields []simba.Field) {
	if fields != nil || m.extra != nil {
		x := m.makeExtra()
		x.fields, x.weight = fields, bytesOf(fields)
	}
}

func (m *mutex) waiters() int {
	if m.extra == nil {
		return 0
	}
	return len(m.extra.all)
}

// makeExtra returns the extra state. It creates a missing one.
func (m *mutex) makeExtra() *extra {
	if m.extra == nil {
		m.extra = &extra{}
	}
	return m.extra
}

// idle reports whether the mutex has no state left. It drops an empty extra state.
func (m *mutex) idle() bool {
	if x := m.extra; x != nil && x.isEmpty() {
		m.extra = nil
	}
	return !m.owned() && m.extra == nil
}

func (x *extra) isEmpty() bool {
	return len(x.all) == 0 && x.reserved == nil && x.outsider == 0 &&
		x.session == 0 && x.unconfirmed == nil && x.long == 0 && x.fields == nil
}

// deadline returns the next instant at which the mutex changes without a request. The result may be
// too early, but never too late. recoverUntil is the end of the recovery delay. former is the last
// token of earlier runs.
func (m *mutex) deadline(recoverUntil simba.Instant, former uint64) simba.Instant {
	d := never
	x := m.extra
	switch {
	case m.owned() && m.token <= former && x != nil && x.find(m.owner()) != nil: // see endRecovery
		d = min(m.end(), recoverUntil)
	case m.owned():
		d = m.end()
	case x == nil:
	case x.reserved != nil:
		d = x.until
	case x.next() != nil:
		d = max(recoverUntil, x.open)
	case x.outsider != 0:
		d = x.outsider.Add(outsiderCounts)
	}
	if x != nil && x.nextLapse != 0 {
		d = min(d, x.nextLapse)
	}
	return d
}

// remaining returns the time until end, 0 if end has passed. It rounds up to whole milliseconds, so
// that a client that sleeps for the result does not wake before end. For an endless lease it
// returns MaxTTL, and the client may ask again after that time.
func remaining(end, now simba.Instant) time.Duration {
	if end == never {
		return simba.MaxTTL
	}
	d := end.Sub(now)
	if d <= 0 {
		return 0
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// outcome returns the status, and the state of the mutex for contender.
func (m *mutex) outcome(status simba.Status, s *step, contender string) simba.Outcome {
	o, x := simba.Outcome{Status: status}, m.extra
	if x != nil {
		o.Position = x.position(contender)
	}
	switch {
	case m.owned():
		o.Owner, o.Token = m.owner(), m.token
		o.TTL, o.Transition = remaining(m.ttlEnd(), s.now), remaining(m.end(), s.now)
	case s.now < s.recoverUntil:
		o.Transition = remaining(s.recoverUntil, s.now)
	case x != nil && x.reserved != nil:
		o.Transition = remaining(x.until, s.now)
	case x != nil && x.open > s.now:
		o.Transition = remaining(x.open, s.now)
	}
	return o
}

func (m *mutex) tenure(now simba.Instant) simba.Tenure {
	t := simba.Tenure{
		Owner: m.owner(), Token: m.token,
		AcquiredAt: m.acquiredAt,
		Now:        m.acquiredAt + now.Sub(m.acquired).Milliseconds(),
		TTL:        remaining(m.ttlEnd(), now),
		Transition: remaining(m.end(), now),
		Waiters:    m.waiters(),
		StartedAt:  m.startedAt,
	}
	if m.extra != nil {
		t.Session = m.extra.session
	}
	if m.end() == never {
		t.TTLAt = t.Now + t.TTL.Milliseconds()
	} else {
		t.TTLAt = t.AcquiredAt + m.ttlLen().Milliseconds()
	}
	t.TransitionAt = t.TTLAt + int64(m.transition)
	return t
}
