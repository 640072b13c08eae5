package persist

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/simba-resp/simba-resp"
)

// metaFormat is the version of the store. Values of leases and of the history have their own
// versions.
const metaFormat = 1

// epoch identifies a boot of the machine for a store. Stored instants count from a boot.
type epoch struct {
	Boot       string // see Boot.ID
	Generation uint64 // counts the boots of this store, from 1

	// Rebased is the instant of this boot at which the leases of earlier generations begin anew.
	// RebasedAt is the same instant in Unix milliseconds.
	Rebased   simba.Instant
	RebasedAt int64
}

// meta is the row that describes the other rows. Each write of the checkpoint has it.
type meta struct {
	epoch

	Seq   simba.Seq // no client has seen a larger one
	Token uint64    // no client has seen a larger one
	// Delay is the recovery delay of the next run. After a clean stop, it is the part of the
	// stopped run's delay that had not passed.
	Delay time.Duration

	// Latest is the boot's clock when the record was made. A stored instant of this generation can
	// be later only by the time between two readings of a clock.
	Latest simba.Instant

	Index uint64 // of the last record in the checkpoint
	Term  uint64 // of that record
	// Segment is the first segment of the journal that counts. It is the one after the last snapshot
	// that a member of a cluster has received; 0 = all.
	Segment uint64
	Store   [16]byte // the store's random id, which its journal has too
}

func appendMeta(b []byte, m *meta) []byte {
	b = binary.AppendUvarint(b, metaFormat)
	b = appendString(b, m.Boot)
	b = binary.AppendUvarint(b, m.Generation)
	b = binary.AppendVarint(b, int64(m.Rebased))
	b = binary.AppendVarint(b, m.RebasedAt)
	b = binary.AppendUvarint(b, uint64(m.Seq))
	b = binary.AppendUvarint(b, m.Token)
	b = binary.AppendUvarint(b, uint64(m.Delay))
	b = binary.AppendVarint(b, int64(m.Latest))
	b = binary.AppendUvarint(b, m.Index)
	b = binary.AppendUvarint(b, m.Term)
	b = binary.AppendUvarint(b, m.Segment)
	return append(b, m.Store[:]...)
}

func decodeMeta(value []byte) (m meta, err error) {
	r := reader{rest: value}
	if err := r.version(metaFormat); err != nil {
		return meta{}, err
	}
	m.Boot = r.string()
	m.Generation = r.uvarint()
	m.Rebased = simba.Instant(r.varint())
	m.RebasedAt = r.varint()
	m.Seq = simba.Seq(r.uvarint())
	m.Token = r.uvarint()
	m.Delay = r.duration(math.MaxInt64)
	m.Latest = simba.Instant(r.varint())
	m.Index = r.uvarint()
	m.Term = r.uvarint()
	m.Segment = r.uvarint()
	for i := range m.Store {
		m.Store[i] = r.byte()
	}
	if m.Generation == 0 && m.Index > 0 { // only a new store has had no boot
		r.fail()
	}
	if err := r.finish(); err != nil {
		return meta{}, fmt.Errorf("meta row: %w", err)
	}
	return m, nil
}

// isOf reports whether the epoch is that of boot, whose clock shows now. If the clock has gone back
// since the last record, isOf returns false: otherwise leases would have more time left than was
// granted.
func (m *meta) isOf(boot Boot, now simba.Instant) bool {
	return m.Generation != 0 && m.Boot != "" && m.Boot == boot.ID && m.Latest <= now
}

// rebase returns the lease with its instants on the epoch's boot. A lease of another generation
// begins anew.
func (e *epoch) rebase(l simba.Lease, generation uint64) simba.Lease {
	if generation != e.Generation {
		l.Acquired, l.AcquiredAt = e.Rebased, e.RebasedAt
	}
	return l
}
