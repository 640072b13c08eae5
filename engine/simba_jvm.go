package engine

import "time"

// This file has the contenders of Simba on the JVM that the queue alone does not serve: those that
// receive no notices, and those that do not queue.

// A contender of Simba that receives no notices polls. It asks again at most jitter after the end
// of the lease that it saw last; Simba's own bound is a second.
const jitter, near = 1100 * time.Millisecond, 2 * time.Second

// keepTurn reserves the free mutex for a contender that receives no notices, if it will ask soon:
// if the end of the lease that it saw last is near.
func (x *extra) keepTurn(s *step, e *entry) {
	if asks := e.seen.Add(jitter); s.window > 0 && s.now < asks && e.seen <= s.now.Add(near) {
		x.reserve(e, asks, true)
	}
}

// noteRefusal notes that a script asked for the mutex in vain, and saw that the lease ends at
// endsAt, in Unix milliseconds. If the lease is endless, endsAt is 0, and the script may ask again
// at any time.
func (m *mutex) noteRefusal(s *step, contender string, endsAt int64) {
	x := m.makeExtra()
	switch e := x.find(contender); {
	case m.owner() == contender:
	case e == nil:
		x.outsider = s.now
	case e.ticket == nil:
		if e.seen = s.now; endsAt > s.wall {
			e.seen = s.now.Add(min(time.Duration(endsAt-s.wall)*time.Millisecond, longestLapse))
		}
		e.kept = false
		x.setLapse(e, e.seen.Add(jitter+s.grace))
		x.setReady(e, true)
	}
}

// outsiderCounts is how long an outsider counts after it asked in vain.
const outsiderCounts = time.Minute

// openToOutsiders leaves the free mutex to outsiders for a moment, every third time that it becomes
// free. Outsiders are contenders whose scripts take the mutex without a queue entry, such as those
// of Simba from 3.2. The moment does not depend on waiters: without it, clients that release the
// mutex and ask again at once would always come first.
func (m *mutex) openToOutsiders(s *step) bool {
	x := m.extra
	if x.sinceOpen < 3 {
		return false
	}
	if x.sinceOpen = 0; x.outsider == 0 {
		return false
	}
	x.open = s.now.Add(150 * time.Millisecond)
	s.freed, s.last = true, x.last
	return true
}
