package mysql

import "sync"

// tenures has the last known tenure of an owner on the JVM for each mutex. An owner on the JVM may
// take no token, and its row then keeps the token of the tenure before (see token.go). If this
// engine granted the tenure before, the row shows that its token is old (see lacksToken). If the
// tenure before was on the JVM too, only a server that remembers that tenure notices the old token.
// The zero value is empty.
type tenures struct {
	mu            sync.Mutex        // guards the fields below
	recent, older map[string]tenure // when recent is full, it becomes older
}

// maxTenures is how many mutexes each of the two maps has at most.
const maxTenures = 10_000

type tenure struct {
	owner          string // "" = released
	token, version uint64 // of the row when it was last read
	over           bool   // the lease had ended by then
}

// version returns the last known version of a mutex; 0 = none.
func (s *tenures) version(mutex string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, _ := s.lastLocked(mutex)
	return last.version
}

// note records a row. since is what the method version returned before the row was read. note
// returns false if the owner has the token of an earlier tenure, or if the row has got another
// token since the read.
func (s *tenures) note(mutex string, r row, since uint64) (own bool) {
	if r.fencing%tokenUnit == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.lastLocked(mutex)
	if r.Revision < since {
		known = false // the row was deleted, so the known tenure does not count
	}
	switch {
	case known && r.Revision <= last.version && r.fencing < last.token:
		return false
	case known && r.Revision < last.version: // the row has changed since it was read
		return true
	case known && r.Revision > last.version && r.fencing == last.token && r.Owner != "" && (r.Owner != last.owner || last.over):
		return false
	}
	over := !r.Live || known && last.over && r.Revision == last.version
	s.keepLocked(mutex, tenure{r.Owner, r.fencing, r.Revision, over})
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
