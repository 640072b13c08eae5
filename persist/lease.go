package persist

import (
	"encoding/binary"
	"fmt"

	"github.com/simba-resp/simba-resp"
)

// The versions of leases' rows. Each is written for what the one before cannot say.
const (
	leaseVersion = 1
	lockVersion  = 2 // any TTL and owner, and the fields of a hash
)

func appendLeaseKey(b []byte, mutex string) []byte {
	b = append(b, leasePrefix)
	return append(b, mutex...)
}

// appendLease appends the value of l's row: the mutex is in its key, and
// l.Acquired counts from the boot of the generation.
func appendLease(b []byte, generation uint64, l *simba.Lease) []byte {
	version := byte(leaseVersion)
	if l.TTL > simba.MaxTTL || l.Owner == "" || l.Fields != nil || len(l.Mutex) > simba.MaxMutexLen || len(l.Owner) > simba.MaxContenderLen {
		version = lockVersion
	}
	b = append(b, version)
	b = binary.AppendUvarint(b, generation)
	b = binary.AppendUvarint(b, l.Token)
	b = binary.AppendVarint(b, int64(l.Acquired))
	b = binary.AppendVarint(b, l.AcquiredAt)
	b = binary.AppendUvarint(b, uint64(l.TTL))
	b = binary.AppendUvarint(b, uint64(l.Transition))
	b = appendString(b, l.Owner)
	if version == lockVersion {
		b = binary.AppendUvarint(b, uint64(len(l.Fields)))
		for _, f := range l.Fields {
			b = appendString(appendString(b, f.Name), f.Value)
		}
	}
	return b
}

// decodeLease reads the row of a lease. Errors name the mutex.
func decodeLease(key, value []byte) (l simba.Lease, generation uint64, err error) {
	l.Mutex = string(key[1:])
	r := reader{rest: value}
	version, longest := r.byte(), simba.MaxTTL
	switch {
	case version > lockVersion:
		return l, 0, fmt.Errorf("lease of mutex %q: %w", l.Mutex, &versionError{"format", uint64(version), lockVersion})
	case version == lockVersion:
		longest = simba.Endless
	case version == 0:
		r.fail()
	}
	generation = r.uvarint()
	l.Token = r.uvarint()
	l.Acquired = simba.Instant(r.varint())
	l.AcquiredAt = r.varint()
	if l.TTL = r.duration(longest); l.TTL > simba.MaxLockTTL && l.TTL != simba.Endless {
		r.fail()
	}
	l.Transition = r.duration(simba.MaxTransition)
	l.Owner = r.string()
	if version == lockVersion {
		for range r.uvarint() {
			if r.broken {
				break
			}
			l.Fields = append(l.Fields, simba.Field{Name: r.string(), Value: r.string()})
		}
	}
	if l.Owner == "" && version == leaseVersion || l.Token == 0 || l.TTL == 0 || generation == 0 {
		r.fail()
	}
	if err := r.finish(); err != nil {
		return l, 0, fmt.Errorf("lease of mutex %q: %w", l.Mutex, err)
	}
	return l, generation, nil
}
