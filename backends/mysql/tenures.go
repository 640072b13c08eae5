package mysql

import "sync"

// tenures are those that this server has seen last, one of each mutex. By them it notices an owner
// that took no token, and so has that of the tenure before. The zero tenures have seen none.
type tenures struct {
	mu            sync.Mutex        // guards what follows
	recent, older map[string]tenure // the recent ones become the older ones when there are maxTenures
}

// maxTenures is how many mutexes are remembered at least. Twice as many are at most.
const maxTenures = 10_000

type tenure struct {
	owner          string
	token, version uint64 // of the row when it was seen last
	over           bool
}

// version is the last one that is known of a mutex; 0 = none.
func (s *tenures) version(mutex string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, _ := s.lastLocked(mutex)
	return last.version
}

// see takes note of what a row shows that was asked for when a version was known. It reports
// false if its tenure has no token of its own: that of an earlier tenure, or none yet.
func (s *tenures) see(mutex string, r row, since uint64) (own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.lastLocked(mutex)
	// A tenure of ours has fencing_token and version equal. An owner on the JVM counts the version up
	// at each renewal, so of such an owner this says nothing alone.
	doubtful := r.fenced && r.owner != "" && r.fencing < r.version
	if r.version < since {
		known = false // the row was deleted: nothing that was known counts
	}
	if known && (r.version < last.version || r.version == last.version && r.token < last.token) {
		return !doubtful // the row was changed since it was read
	}
	if r.owner == "" {
		if known {
			last.over, last.version = true, r.version
			s.keepLocked(mutex, last)
		}
		return true
	}
	another := known && (r.owner != last.owner || last.over && r.version > last.version)
	if doubtful && (r.fencing == 0 || another && r.fencing <= last.token && last.token < r.version) {
		return false
	}
	over := !r.live || last.over && r.version == last.version
	s.keepLocked(mutex, tenure{r.owner, r.token, r.version, over})
	return true
}

func (s *tenures) lastLocked(mutex string) (t tenure, known bool) {
	if t, known = s.recent[mutex]; !known {
		t, known = s.older[mutex]
	}
	return t, known
}

func (s *tenures) keepLocked(mutex string, t tenure) {
	if _, is := s.recent[mutex]; !is && len(s.recent) >= maxTenures {
		s.recent, s.older = nil, s.recent
	}
	if s.recent == nil {
		s.recent = make(map[string]tenure)
	}
	s.recent[mutex] = t
}
