package persist

import (
	"math/bits"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Stats are a Store's figures since it was opened.
type Stats struct {
	Commits int64 // writes, each with one fsync
	Changes int64 // in the commits
	Bytes   int64 // of their records

	LargestCommit int64 // the most changes that shared one fsync
	LastCommit    time.Duration
	LongestCommit time.Duration

	Syncs  simba.Durations // of each write with its fsync
	Groups GroupSizes      // changes of each commit
}

// GroupSizes counts commits by their number of changes. Entry i counts commits of more than 2^(i-1)
// and at most 2^i changes, and the last entry all larger ones.
type GroupSizes [16]int64

func (s *GroupSizes) add(changes int) {
	s[min(bits.Len(uint(max(changes, 1)-1)), len(s)-1)]++
}

// Stats returns the current figures.
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
	st.Syncs.Add(took)
	st.Groups.add(g.changes)
}
