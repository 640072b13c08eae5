package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// scan is the result of reading the files, which changes nothing.
type scan struct {
	covered  []string  // paths of segments whose records the checkpoint has
	segments []segment // the others, in order
	spares   []uint64  // numbers of the spares

	last uint64 // index of the last record if there is no segment

	// Of the last segment:
	durable uint64 // largest durable index that its frames state
	end     int64  // offset after its last record
}

// scanDir reads the journal and finds its end. It returns a DamageError if a durable record is
// missing.
func scanDir(o *Options) (*scan, error) {
	names, err := o.FS.List(o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var s scan
	var numbers []uint64
	for _, name := range names {
		if n, ok := parseSegment(name); ok && n < o.Segment {
			s.covered = append(s.covered, o.path(name))
		} else if ok {
			numbers = append(numbers, n)
		}
		if n, ok := parseSpare(name); ok {
			s.spares = append(s.spares, n)
		}
	}
	slices.Sort(numbers)
	slices.Sort(s.spares)
	if err := s.readHeaders(o, numbers); err != nil {
		return nil, err
	}
	for i := range s.segments {
		if err := s.readFrames(o, i); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// readHeaders reads headers from the last segment back to the one that has the first record after
// the checkpoint.
func (s *scan) readHeaders(o *Options, numbers []uint64) error {
	if len(numbers) == 0 && len(s.covered) > 0 { // a crash was faster than Reset
		s.last = o.From
		return nil
	}
	if len(numbers) == 0 && o.From > 0 {
		return damaged(o.path(segmentName(1)), 0, "no segment is left, the checkpoint has records up to %d", o.From)
	}
	for i, number := range slices.Backward(numbers) {
		seg, err := readHeader(o, number)
		if err != nil {
			return err
		}
		s.segments = slices.Insert(s.segments, 0, seg)
		if seg.first <= o.From+1 {
			for _, number := range numbers[:i] {
				s.covered = append(s.covered, o.path(segmentName(number)))
			}
			return nil
		}
		if i == 0 || numbers[i-1] != number-1 {
			return damaged(o.path(segmentName(number-1)), 0,
				"the segment is missing: the next one begins with record %d, the checkpoint has records up to %d", seg.first, o.From)
		}
	}
	return nil
}

// readFrames reads the segment at an index of s.segments, and notes its end.
func (s *scan) readFrames(o *Options, at int) error {
	r, err := newReader(o.FS, s.segments[at])
	if err != nil {
		return err
	}
	defer r.close()
	next := uint64(0) // smallest first index of the later segments; 0 = there is none
	for _, later := range s.segments[at+1:] {
		if next == 0 || later.first < next {
			next = later.first
		}
	}
	if next != 0 && next <= r.index { // Truncate has dropped all records of the segment
		s.segments[at].last = next - 1
		return nil
	}
	for r.index != next {
		ok, err := r.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
	}
	s.segments[at].last = r.index - 1
	if next != 0 {
		if next != r.index {
			return damaged(r.path, r.offset, "record %d should be here, the next segment begins with record %d", r.index, next)
		}
		return nil
	}
	s.durable, s.end = r.durable, r.offset
	found, err := r.hasLaterFrame()
	switch {
	case err != nil:
		return err
	case found:
		return damaged(r.path, r.offset, "record %d should be here, a later frame says that it was durable", r.index)
	case r.index <= o.From:
		return damaged(r.path, r.offset, "record %d should be here, the checkpoint has records up to %d", r.index, o.From)
	}
	return nil
}

// makeDurable makes the recovered records and the names of the segments durable. If the last run was
// killed, its writes may be in the kernel's memory only. If no frame states that a record was durable,
// makeDurable writes the record again: after a failed sync, another sync alone may do nothing.
func (s *scan) makeDurable(o *Options) error {
	for _, dir := range []string{o.FS.PathDir(o.Dir), o.Dir} {
		if err := SyncDir(o.FS, dir); err != nil {
			return err
		}
	}
	if len(s.segments) == 0 {
		return nil
	}
	last := s.segments[len(s.segments)-1]
	r, err := newReader(o.FS, last)
	if err != nil {
		return err
	}
	defer r.close()
	for r.index <= s.durable {
		if ok, err := r.next(); err != nil || !ok {
			return errors.Join(err, damaged(r.path, r.offset, "record %d was here a moment ago", r.index))
		}
	}
	f, err := o.FS.OpenReadWrite(last.path, category)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	for b := make([]byte, fillStep); r.offset < s.end; r.offset += int64(len(b)) {
		b = b[:min(int64(len(b)), s.end-r.offset)]
		if _, err := f.ReadAt(b, r.offset); err != nil {
			return fmt.Errorf("journal: read %s: %w", last.path, err)
		}
		if err := writeAt(f, last.path, b, r.offset); err != nil {
			return err
		}
	}
	return syncFile(f, last.path)
}
