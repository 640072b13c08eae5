package persist

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/bugs"
)

// metaFormat is the version of everything that is stored; the records of leases
// and of the history have versions of their own within it. Format 1 has no Latest. Before
// format 3 a key simba:{m} was the mutex of that whole name, unless SIMBA.* can name m.
const metaFormat = 3

// meta is the record that says what the others mean. It is written with every
// group of changes.
type meta struct {
	Boot       string // the id of the boot that the generation stands for
	Generation uint64 // of the boots of this store, from 1

	// Latest is the boot's clock when the record was made: stored instants of this
	// generation are not later, but for the time between two readings of a clock.
	Latest simba.Instant

	// Rebased is the instant of this boot at which the leases of earlier
	// generations begin anew, RebasedAt the same in Unix milliseconds.
	Rebased   simba.Instant
	RebasedAt int64

	Seq   simba.Seq     // no larger one was told
	Token uint64        // no larger one was told
	Quiet time.Duration // how long the next run has to be quiet; 0 after a clean stop

	format uint64 // of the record that was read; 0 = there was none
}

func appendMeta(b []byte, m *meta) []byte {
	b = binary.AppendUvarint(b, metaFormat)
	b = appendString(b, m.Boot)
	b = binary.AppendUvarint(b, m.Generation)
	b = binary.AppendVarint(b, int64(m.Rebased))
	b = binary.AppendVarint(b, m.RebasedAt)
	b = binary.AppendUvarint(b, uint64(m.Seq))
	b = binary.AppendUvarint(b, m.Token)
	b = binary.AppendUvarint(b, uint64(m.Quiet))
	return binary.AppendVarint(b, int64(m.Latest))
}

func decodeMeta(value []byte) (m meta, err error) {
	r := reader{rest: value}
	format := r.uvarint()
	switch {
	case format > metaFormat:
		return meta{}, &versionError{format, metaFormat}
	case format == 0:
		r.fail()
	}
	m.format = format
	m.Boot = r.string()
	m.Generation = r.uvarint()
	m.Rebased = simba.Instant(r.varint())
	m.RebasedAt = r.varint()
	m.Seq = simba.Seq(r.uvarint())
	m.Token = r.uvarint()
	m.Quiet = r.duration(math.MaxInt64)
	if format >= 2 {
		m.Latest = simba.Instant(r.varint())
	}
	if m.Generation == 0 {
		r.fail()
	}
	if err := r.finish(); err != nil {
		return meta{}, fmt.Errorf("meta record: %w", err)
	}
	return m, nil
}

// isOf reports whether the generation's instants can be read by the clock of that
// boot, which shows now. A clock that has gone back is another one: by it, leases
// would have more left than was granted.
func (m *meta) isOf(boot Boot, now simba.Instant) bool {
	return m.Generation != 0 && m.Boot != "" && m.Boot == boot.ID && m.Latest <= now
}

// place returns the lease as it stands on the current boot's scale.
func (m *meta) place(l simba.Lease, generation uint64) simba.Lease {
	if generation != m.Generation && !bugs.On(bugs.RestartCutsLeases) {
		l.Acquired, l.AcquiredAt = m.Rebased, m.RebasedAt
	}
	return l
}
