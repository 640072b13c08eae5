package journal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const category vfs.DiskWriteCategory = "simba-journal"

// segment is a file of the journal.
type segment struct {
	header
	path string
	size int64       // bytes
	info os.FileInfo // of the file; nil if an earlier run made the segment
	last uint64      // index of its last record; first-1 if it has none; unset in current
}

func segmentName(number uint64) string { return fmt.Sprintf("%010d.seg", number) }

func spareName(number uint64) string { return fmt.Sprintf("spare-%010d", number) }

func parseSegment(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(name, ".seg"), 10, 64)
	return n, err == nil && name == segmentName(n)
}

func parseSpare(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "spare-"), 10, 64)
	return n, err == nil && name == spareName(n)
}

func (o *Options) path(name string) string { return o.FS.PathJoin(o.Dir, name) }

// SyncDir makes the names in a directory durable.
func SyncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

func writeAt(f vfs.File, path string, b []byte, offset int64) error {
	n, err := f.WriteAt(b, offset)
	if err == nil && n < len(b) {
		err = fmt.Errorf("write %s: %w", path, io.ErrShortWrite)
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

func syncFile(f vfs.File, path string) error {
	if err := f.SyncData(); err != nil {
		return fmt.Errorf("journal: sync %s: %w", path, err)
	}
	return nil
}

// create makes a segment from a spare, and opens it. The segment has space for frames of at least
// room bytes in all. Its first frame will have the index that the parameter first says. All records
// before this index must be durable.
//
// The file gets its name when its header is durable. If that name belongs to a segment without a
// record, the new segment replaces it.
func (j *Journal) create(number, first uint64, room int64) (segment, vfs.File, error) {
	s := segment{
		header: header{store: j.o.StoreID, number: number, first: first},
		path:   j.o.path(segmentName(number)),
	}
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // it never fails
	s.salt = binary.LittleEndian.Uint64(salt[:])
	spare, size, err := j.takeSpare(headerSize + room)
	if err != nil {
		return s, nil, err
	}
	s.size = size
	f, err := j.o.FS.OpenReadWrite(spare, category)
	if err != nil {
		return s, nil, fmt.Errorf("journal: %w", err)
	}
	if err := j.publish(&s, f, spare); err != nil {
		f.Close()
		return s, nil, err
	}
	return s, f, nil
}

// publish writes the header of a segment to a spare, which is open as f, and then renames the file.
func (j *Journal) publish(s *segment, f vfs.File, spare string) (err error) {
	if err := writeAt(f, spare, s.encode(), 0); err != nil {
		return err
	}
	if err := syncFile(f, spare); err != nil {
		return err
	}
	if s.info, err = f.Stat(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.o.FS.Rename(spare, s.path); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return SyncDir(j.o.FS, j.o.Dir)
}
