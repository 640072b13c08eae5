package journal

import "fmt"

// Truncate drops the records after the index last, durably. The next record gets the index after it.
// If a crash ends Truncate, all of the records may still be there.
//
// The checkpoint must not have a dropped record. Calls of Release and Records for records that stay
// may overlap Truncate, as they may overlap Append.
func (j *Journal) Truncate(last uint64) error {
	if err := j.failure(); err != nil || last >= j.appended {
		return err
	}
	j.mu.Lock()
	first := j.current.first
	if len(j.full) > 0 {
		first = j.full[0].first
	}
	j.mu.Unlock()
	if last+1 < first {
		return j.fail(fmt.Errorf("journal: drop the records after %d: the first one is %d", last, first))
	}
	return j.continueAfter(last)
}

// NextSegment returns the number of the segment that Reset would begin.
func (j *Journal) NextSegment() uint64 { return j.current.number + 1 }

// Reset drops all records. The next record gets the index after last. The checkpoint must have all
// records up to last already, and every Open from now on must get last or more as Options.From, and
// the number that NextSegment returned before as Options.Segment.
//
// Reset must not overlap other calls.
func (j *Journal) Reset(last uint64) error {
	if err := j.failure(); err != nil {
		return err
	}
	if err := j.continueAfter(last); err != nil {
		return err
	}
	return j.Release(last)
}

// continueAfter begins a segment for the records after the index last. What earlier segments have beyond
// the first index of a later one is not part of the journal.
func (j *Journal) continueAfter(last uint64) error {
	j.appended = last
	if err := j.rotate(0); err != nil {
		return j.fail(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.full {
		j.full[i].last = min(j.full[i].last, last)
	}
	return nil
}
