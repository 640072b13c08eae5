package journal

import "github.com/cockroachdb/pebble/v2/vfs"

const (
	// MaxPayload is the largest length of a record's payload, in bytes.
	MaxPayload = 1 << 30

	// block is the unit of the sizes of files, in bytes.
	block = 4096
	// smallSegment is the size of a segment that is made without a spare, in bytes.
	smallSegment = 1 << 20
)

// Options are the options of Open. FS, Dir and SegmentSize must be set.
type Options struct {
	FS vfs.FS
	// Dir is the directory of the journal, which must have no other files. Open creates it, but its
	// parent must exist.
	Dir string
	// StoreID names the store of the journal. Open refuses segments of another store.
	StoreID [16]byte
	// From is the index of the last record in the checkpoint. Zero means that there is no
	// checkpoint. Open refuses a journal that lacks the next record, or that ends before From.
	From uint64
	// Segment is the first segment that counts: see Journal.Reset. Zero means all.
	Segment uint64
	// SegmentSize is the size of a segment's file, in bytes. It is rounded up to whole blocks of 4
	// KiB, and to two blocks at least. A record that does not fit gets a larger segment.
	SegmentSize int64
}

// roundSize rounds the size of a segment.
func (o *Options) roundSize() { o.SegmentSize = max(roundUp(o.SegmentSize, block), 2*block) }

// roundUp returns the smallest multiple of unit that is at least n.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
