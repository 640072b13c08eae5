package commands

import (
	"context"

	"github.com/simba-resp/simba-resp"
)

// sessionLeases are the leases that SESSION bound to one connection, by mutex.
// The backend knows the binding too and has the last word: a lease that was taken
// again elsewhere is not released by the old session.
type sessionLeases struct {
	byMutex map[string]boundLease
	sweepAt int // sweep when there are so many
}

type boundLease struct {
	contender string
	token     uint64
}

// firstSweep is how many leases a session holds before it first looks for those
// that have ended without its doing.
const firstSweep = 64

// bind notes a lease that SESSION bound to this connection.
func (c *client) bind(mutex, contender string, token uint64) {
	s := &c.session
	if s.byMutex == nil {
		s.byMutex = make(map[string]boundLease)
		s.sweepAt = firstSweep
	}
	s.byMutex[mutex] = boundLease{contender, token}
	if len(s.byMutex) >= s.sweepAt {
		c.sweepSession()
	}
}

// unbind forgets the lease of mutex unless its tenure is still the current one:
// current is the token of the mutex now, 0 = free.
func (c *client) unbind(mutex string, current uint64) {
	if b, ok := c.session.byMutex[mutex]; ok && b.token != current {
		delete(c.session.byMutex, mutex)
	}
}

// sweepSession forgets leases that expired. It runs each time their number has
// doubled, so a connection that lets them expire keeps no more than twice what
// it holds, at a constant cost a lease.
func (c *client) sweepSession() {
	for mutex, b := range c.session.byMutex {
		// What is not told to anyone needs no settling.
		if held, _, err := c.x.backend.Check(c.conn.Context(), mutex, b.token); err == nil && !held {
			delete(c.session.byMutex, mutex)
		}
	}
	c.session.sweepAt = max(firstSweep, 2*len(c.session.byMutex))
}

// releaseSession gives up what is bound to the connection, which is closed.
func (c *client) releaseSession() {
	if len(c.session.byMutex) == 0 {
		return
	}
	ctx := context.Background() // the connection's has ended
	for mutex, b := range c.session.byMutex {
		_, seq, err := c.backend().Release(ctx, simba.ReleaseRequest{
			Mutex: mutex, Contender: b.contender, Session: c.conn.ID(), Reason: "session closed",
		})
		if err != nil {
			c.x.log.Warn("cannot release the lease of a closed session; it will expire",
				"mutex", mutex, "contender", b.contender, "err", err)
		}
		c.owe(seq)
	}
	if err := c.settle(); err != nil {
		c.x.log.Warn("cannot settle the leases of a closed session", "err", err)
	}
}
