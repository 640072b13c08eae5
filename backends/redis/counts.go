package redis

import (
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// counts are what went through this server. Safe for concurrent use.
type counts struct {
	acquired, renewed, released, expired, broken, isHandoff atomic.Int64
	token                                                   atomic.Uint64
}

func (c *counts) add(s *state) {
	for _, e := range s.events {
		switch e.Kind {
		case simba.EventAcquired:
			c.acquired.Add(1)
			if isHandoff(e) {
				c.isHandoff.Add(1)
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

// Stats implements simba.Backend. Only Redis could count what it keeps.
func (b *Backend) Stats() simba.Stats {
	return simba.Stats{
		Held: -1, Mutexes: -1, Polling: -1,
		Blocked:  int64(b.waiters.Len()),
		Acquired: b.counts.acquired.Load(), Renewed: b.counts.renewed.Load(),
		Released: b.counts.released.Load(), Expired: b.counts.expired.Load(),
		Broken: b.counts.broken.Load(), Handoffs: b.counts.isHandoff.Load(),
		Seq: b.eventLog.Seq(), Token: b.counts.token.Load(),
	}
}
