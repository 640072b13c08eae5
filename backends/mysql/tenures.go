package mysql

import "sync"

// tenures are those of owners on the JVM that this server has seen last, one of each mutex. After one
// of ours, fencing_token shows an owner without a token (isBare). After one of theirs it does not, so a
// server that remembers that one notices. The zero tenures have seen none.
type tenures struct {
	mu            sync.Mutex        // guards what follows
	recent, older map[string]tenure // the recent ones become the older ones when there are maxTenures
}

// maxTenures is how many mutexes are remembered at least. Twice as many are at most.
const maxTenures = 10_000

type tenure struct {
	owner          string // "" = it was given up
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
// false if the row's owner has the token of an earlier tenure, or the row has got another since.
func (s *tenures) note(mutex string, r row, since uint64) (own bool) {
	if !r.fenced || r.fencingToken%tokenUnit == 0 || r.isLegacy() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.lastLocked(mutex)
	if r.version < since {
		known = false // the row was deleted: nothing that was known counts
	}
	switch {
	case known && r.version <= last.version && r.fencingToken < last.token:
		return false
	case known && r.version < last.version: // the row was changed since it was read
		return true
	case known && r.version > last.version && r.fencingToken == last.token && r.owner != "" && (r.owner != last.owner || last.over):
		return false
	}
	over := !r.live || known && last.over && r.version == last.version
	s.keepLocked(mutex, tenure{r.owner, r.fencingToken, r.version, over})
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
