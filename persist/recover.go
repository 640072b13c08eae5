package persist

import (
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
)

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
