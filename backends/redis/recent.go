package redis

// recentSet is a set that forgets old elements. An element stays until the second call of rotate
// after it was added.
type recentSet[K comparable] struct{ young, old map[K]struct{} }

// add adds k, and reports whether it is new.
func (s *recentSet[K]) add(k K) bool {
	isNew := !s.has(k)
	if s.young == nil {
		s.young = make(map[K]struct{})
	}
	s.young[k] = struct{}{}
	return isNew
}

func (s *recentSet[K]) has(k K) bool {
	_, young := s.young[k]
	_, old := s.old[k]
	return young || old
}

func (s *recentSet[K]) rotate() { s.young, s.old = nil, s.young }
