package persist

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// OpenToRecover is OpenReplica for a directory that exists, and may be that of a single server, which
// then becomes a member's. It changes nothing if it refuses the directory.
func OpenToRecover(o Options) (*Replica, error) {
	names, err := vfs.Default.List(o.Dir)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, memberName) {
		held, err := heldStore(vfs.Default, o.Dir)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && !held:
			return nil, errors.New("the directory has no store")
		case err != nil:
			return nil, err
		case o.RecoveryDelay != 0:
			return nil, errors.New("a single server's directory has all leases: it needs no --recovery-delay")
		}
		s, _, err := Open(o) // it puts what was restored from a backup into the journal
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	o.single = true
	return OpenReplica(o)
}

// Recover makes all records final, those of a single server too, and returns the index of the last
// one. It must not overlap Append.
//
// If leases may be lost, delay is above 0. As after Restore, the next token and event number are then
// above the wall clock in microseconds, every lease begins anew, and the leader grants nothing new
// for the delay, or for the longest lease in the directory.
func (r *Replica) Recover(delay time.Duration) (index uint64, err error) {
	err = r.checkpoints.advanced(r.journal.Durable(), func(c *checkpoint) error {
		m := &c.meta
		index, m.Term = m.Index, max(m.Term, 1)
		if delay == 0 {
			return pebbleError(c.write())
		}
		for l, err := range r.leases {
			if err != nil {
				return err
			} else if l.TTL <= simba.MaxTTL { // only lock keys have longer ones
				delay = max(delay, l.TTL+l.Transition)
			}
		}
		floor, err := Floor(r.options.Wall())
		m.Seq, m.Token, m.Delay = max(m.Seq, simba.Seq(floor)), max(m.Token, floor), max(m.Delay, delay)
		m.Boot = "" // leases of this boot begin anew too
		return errors.Join(err, r.beginEpoch())
	})
	r.committed.Store(index)
	return index, err
}
