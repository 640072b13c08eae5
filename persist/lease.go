package persist

import (
	"encoding/binary"
	"fmt"

	"github.com/simba-resp/simba-resp"
)

// leaseVersion is the version of lease records that is written.
const leaseVersion = 1

func appendLeaseKey(b []byte, mutex string) []byte {
	b = append(b, leasePrefix)
	return append(b, mutex...)
}

// appendLease appends the value of l's record: the mutex is in its key, and
// l.Acquired counts from the boot of the generation.
func appendLease(b []byte, generation uint64, l *simba.Lease) []byte {
	b = append(b, leaseVersion)
	b = binary.AppendUvarint(b, generation)
	b = binary.AppendUvarint(b, l.Token)
	b = binary.AppendVarint(b, int64(l.Acquired))
	b = binary.AppendVarint(b, l.AcquiredAt)
	b = binary.AppendUvarint(b, uint64(l.TTL))
	b = binary.AppendUvarint(b, uint64(l.Transition))
	return appendString(b, l.Owner)
}

// decodeLease reads a lease record. Errors name the mutex.
func decodeLease(key, value []byte) (l simba.Lease, generation uint64, err error) {
	l.Mutex = string(key[1:])
	r := reader{rest: value}
	if v := r.byte(); v > leaseVersion {
		return l, 0, fmt.Errorf("lease of mutex %q: %w", l.Mutex, &versionError{uint64(v), leaseVersion})
	} else if v == 0 {
		r.fail()
	}
	generation = r.uvarint()
	l.Token = r.uvarint()
	l.Acquired = simba.Instant(r.varint())
	l.AcquiredAt = r.varint()
	l.TTL = r.duration(simba.MaxTTL)
	l.Transition = r.duration(simba.MaxTransition)
	l.Owner = r.string()
	if l.Owner == "" || l.Token == 0 || l.TTL == 0 || generation == 0 {
		r.fail()
	}
	if err := r.finish(); err != nil {
		return l, 0, fmt.Errorf("lease of mutex %q: %w", l.Mutex, err)
	}
	return l, generation, nil
}
