package persist

import (
	"math/bits"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Stats are a Store's figures since Open.
type Stats struct {
	Commits int64 // writes, each with one fsync
	Changes int64 // in all commits
	Bytes   int64 // of the records

	LargestCommit int64 // changes of the largest commit
	LastCommit    time.Duration
	LongestCommit time.Duration

	Syncs  simba.Durations // duration of each write with its fsync
	Groups GroupSizes      // commits by their number of changes
}

// GroupSizes counts commits by their number of changes. Entry i counts commits of more than 2^(i-1)
// and at most 2^i changes. The last entry also counts all larger commits.
type GroupSizes [16]int64

func (s *GroupSizes) add(changes int) {
	s[min(bits.Len(uint(max(changes, 1)-1)), len(s)-1)]++
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
