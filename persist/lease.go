package persist

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/simba-resp/simba-resp"
)

// leaseVersion is the version of the format in which rows of leases are written.
const leaseVersion = 1

func appendLeaseKey(b []byte, mutex string) []byte {
	b = append(b, leasePrefix)
	return append(b, mutex...)
}

// appendLeaseRow appends the value of l's row. The row's key has the mutex. generation names the
// boot from which l.Acquired counts.
func appendLeaseRow(b []byte, generation uint64, l *simba.Lease) []byte {
	b = append(b, leaseVersion)
	b = binary.AppendUvarint(b, generation)
	return appendLease(b, 0, l)
}

// decodeLeaseRow reads the row of a lease. Errors name the mutex.
func decodeLeaseRow(key, value []byte) (l simba.Lease, generation uint64, err error) {
	r := reader{rest: value}
	err = r.version(leaseVersion)
	if generation = r.uvarint(); generation == 0 {
		r.fail()
	}
	l = r.lease(0)
	l.Mutex = string(key[1:])
	if err = cmp.Or(err, r.finish()); err != nil {
		return l, 0, fmt.Errorf("lease of mutex %q: %w", l.Mutex, err)
	}
	return l, generation, nil
}

// appendLease appends a lease without its mutex. It writes l.Acquired as the difference from base.
func appendLease(b []byte, base simba.Instant, l *simba.Lease) []byte {
	b = binary.AppendUvarint(b, l.Token)
	b = binary.AppendVarint(b, int64(l.Acquired-base))
	b = binary.AppendVarint(b, l.AcquiredAt)
	b = binary.AppendVarint(b, l.AcquiredAt-l.StartedAt)
	b = binary.AppendUvarint(b, uint64(l.TTL))
	b = binary.AppendUvarint(b, uint64(l.Transition))
	b = appendString(b, l.Owner)
	session := byte(0)
	if l.Session {
		session = 1
	}
	b = append(b, session)
	b = binary.AppendUvarint(b, uint64(len(l.Fields)))
	for _, f := range l.Fields {
		b = appendString(appendString(b, f.Name), f.Value)
	}
	return b
}

// lease reads what appendLease wrote.
func (r *reader) lease(base simba.Instant) (l simba.Lease) {
	l.Token = r.uvarint()
	l.Acquired = base + simba.Instant(r.varint())
	l.AcquiredAt = r.varint()
	l.StartedAt = l.AcquiredAt - r.varint()
	if l.TTL = r.duration(simba.Endless); l.TTL > simba.MaxLockTTL && l.TTL != simba.Endless {
		r.fail()
	}
	l.Transition = r.duration(simba.MaxTransition)
	l.Owner = r.string()
	session := r.byte()
	if l.Session = session == 1; session > 1 {
		r.fail()
	}
	for range r.uvarint() {
		if r.broken {
			break
		}
		l.Fields = append(l.Fields, simba.Field{Name: r.string(), Value: r.string()})
	}
	if l.Token == 0 || l.TTL == 0 {
		r.fail()
	}
	return l
}
