package journal

import (
	"fmt"
	"slices"
)

// Release removes from the journal the segments whose records all have an index of at most index.
// Their files become spares, or are removed. The checkpoint must have these records durably. The
// next Open must get at least that index as Options.From.
//
// Calls of Release must not overlap each other, but may overlap calls of Append and Sync. Release
// must not run while Records reads these segments.
func (j *Journal) Release(index uint64) error {
	if err := j.failure(); err != nil {
		return err
	}
	for {
		j.mu.Lock()
		if len(j.full) == 0 || j.full[0].last > index {
			j.mu.Unlock()
			return nil
		}
		path := j.full[0].path
		j.full = slices.Delete(j.full, 0, 1)
		j.mu.Unlock()
		if err := j.retire(path); err != nil {
			return err
		}
	}
}

func (j *Journal) retireAll(paths []string) error {
	for _, path := range paths {
		if err := j.retire(path); err != nil {
			return err
		}
	}
	return nil
}

// retire makes a spare of a released segment, or removes it. It syncs nothing: see the invariants.
func (j *Journal) retire(path string) error {
	info, err := j.o.FS.Stat(path)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.mu.Lock()
	files := 1 + len(j.full) + len(j.spares) + j.making
	if info.Size() != j.o.SegmentSize || files >= keepFiles {
		j.mu.Unlock()
		if err := j.o.FS.Remove(path); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		return nil
	}
	j.making++
	spare := j.newSpareLocked()
	j.mu.Unlock()
	err = j.o.FS.Rename(path, spare)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.making--
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.spares = append(j.spares, spare)
	return nil
}
