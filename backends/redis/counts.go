package redis

import (
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// counts are the figures of this server since its start. Safe for concurrent use.
type counts struct {
	acquired, renewed, released, expired, broken, handoffs atomic.Int64
	token                                                  atomic.Uint64 // the largest seen
}

func (c *counts) add(s *reply) {
	for _, e := range s.events {
		switch e.Kind {
		case simba.EventAcquired:
			c.acquired.Add(1)
			if isHandoff(e) {
				c.handoffs.Add(1)
			}
		case simba.EventReleased:
			c.released.Add(1)
		case simba.EventExpired:
			c.expired.Add(1)
		case simba.EventBroken:
			c.broken.Add(1)
		}
	}
	if s.status == "renewed" {
		c.renewed.Add(1)
	}
	for {
		last := c.token.Load()
		if s.token <= last || c.token.CompareAndSwap(last, s.token) {
			return
		}
	}
}

// Stats implements simba.Backend. Held, Mutexes and Polling are -1, since only Redis knows them.
func (b *Backend) Stats() simba.Stats {
	return simba.Stats{
		Held: -1, Mutexes: -1, Polling: -1,
		Blocked:  int64(b.waiters.Len()),
		Acquired: b.counts.acquired.Load(), Renewed: b.counts.renewed.Load(),
		Released: b.counts.released.Load(), Expired: b.counts.expired.Load(),
		Broken: b.counts.broken.Load(), Handoffs: b.counts.handoffs.Load(),
		TenureLengths: b.eventLog.TenureLengths(),
		Seq:           b.eventLog.Seq(), Token: b.counts.token.Load(),
	}
}
