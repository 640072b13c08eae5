package journal

import (
	"errors"
	"fmt"
)

const (
	// keepFiles is the number of files that the journal keeps: the current segment, full segments
	// and spares. If there are that many other files, Release removes the file that it releases.
	keepFiles = 4
	// fillStep is how many bytes are filled before a sync. While a spare is filled, a sync of the
	// journal may have to wait until the disk has written that many bytes.
	fillStep = 256 << 10
)

var zeros [fillStep]byte

// errStopped is returned by fill after Close.
var errStopped = errors.New("journal: stopped")

// addSpares adopts the spares of earlier runs. It removes those that are too many, and those of
// another size, such as a file that was not filled to the end.
func (j *Journal) addSpares(numbers []uint64) error {
	for _, n := range numbers {
		j.lastSpare = n
		path := j.o.path(spareName(n))
		info, err := j.o.FS.Stat(path)
		if err == nil && info.Size() == j.o.SegmentSize && len(j.spares) < keepFiles-1 {
			j.spares = append(j.spares, path)
			continue
		}
		if err := j.o.FS.Remove(path); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	return nil
}

// takeSpare returns the path of a file with room for length bytes, and its size. If no spare is
// ready, it fills a small file. For a larger record it fills only one block: the sync of the record
// makes the file's length and its blocks durable.
func (j *Journal) takeSpare(length int64) (path string, size int64, err error) {
	j.mu.Lock()
	if n := len(j.spares) - 1; n >= 0 && length <= j.o.SegmentSize {
		path, j.spares = j.spares[n], j.spares[:n]
		j.mu.Unlock()
		return path, j.o.SegmentSize, nil
	}
	path = j.newSpareLocked()
	j.mu.Unlock()
	small := min(smallSegment, j.o.SegmentSize)
	if length > small {
		return path, roundUp(length, block), j.fill(path, block)
	}
	return path, small, j.fill(path, small)
}

func (j *Journal) newSpareLocked() string {
	j.lastSpare++
	return j.o.path(spareName(j.lastSpare))
}

// fillAhead starts a goroutine that fills a spare, unless there is a spare, or a file is becoming
// one. If the goroutine fails, Append fills a small file when it needs one.
func (j *Journal) fillAhead() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.spares)+j.making > 0 {
		return
	}
	j.making++
	path := j.newSpareLocked()
	j.filler.Go(func() {
		err := j.fill(path, j.o.SegmentSize)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.making--
		if err == nil {
			j.spares = append(j.spares, path)
		}
	})
}

// fill writes a file full of zeros and syncs it. After an error it removes the file.
func (j *Journal) fill(path string, size int64) (err error) {
	f, err := j.o.FS.OpenReadWrite(path, category)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer func() {
		f.Close()
		if err != nil {
			_ = j.o.FS.Remove(path) // the error at hand says more; the next Open removes the file
		}
	}()
	for offset := int64(0); offset < size; offset += fillStep {
		if j.closing.Load() {
			return errStopped
		}
		if err := writeAt(f, path, zeros[:min(fillStep, size-offset)], offset); err != nil {
			return err
		}
		if err := syncFile(f, path); err != nil {
			return err
		}
	}
	return nil
}
