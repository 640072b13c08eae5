package journal

import "fmt"

// Truncate drops the records after the index last, durably. The next record gets the index after it.
// If a crash ends Truncate, all of the records may still be there.
//
// The checkpoint must not have a dropped record. Truncate must not overlap Append, Sync, Records and
// Release.
func (j *Journal) Truncate(last uint64) error {
	if err := j.failure(); err != nil || last >= j.appended {
		return err
	}
	if err := j.truncate(last); err != nil {
		return j.fail(err)
	}
	return nil
}

// truncate begins a segment after the last record that stays. What earlier segments have beyond the
// first index of a later one is not part of the journal.
func (j *Journal) truncate(last uint64) error {
	first := j.current.first
	if len(j.full) > 0 {
		first = j.full[0].first
	}
	if last+1 < first {
		return fmt.Errorf("journal: drop the records after %d: the first one is %d", last, first)
	}
	j.appended = last
	if err := j.rotate(0); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.full {
		j.full[i].last = min(j.full[i].last, last)
	}
	return nil
}
