package persist

import "time"

// Stats are a Store's figures since it was opened.
type Stats struct {
	Commits int64 // writes, each with one fsync
	Changes int64 // in them
	Bytes   int64 // of the records that they are

	LargestCommit int64 // changes that shared one fsync, at most
	LastCommit    time.Duration
	LongestCommit time.Duration
}

// Stats returns the figures of now.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (st *Stats) add(g *group, took time.Duration) {
	st.Commits++
	st.Changes += int64(g.changes)
	st.Bytes += int64(len(g.record))
	st.LargestCommit = max(st.LargestCommit, int64(g.changes))
	st.LastCommit = took
	st.LongestCommit = max(st.LongestCommit, took)
}
