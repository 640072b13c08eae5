package commands

import (
	"context"
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
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
	token     uint64 // unknownToken if the store did not say
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
	if b, ok := c.session.byMutex[mutex]; ok && b.token != current && b.token != unknownToken {
		delete(c.session.byMutex, mutex)
	}
}

// sweepSession forgets leases that expired. It runs each time their number has
// doubled, so a connection that lets them expire keeps no more than twice what
// it holds, at a constant cost a lease.
func (c *client) sweepSession() {
	for mutex, b := range c.session.byMutex {
		if b.token == unknownToken {
			delete(c.session.byMutex, mutex) // its contender has asked again, or does not care
			continue
		}
		// What is not told to anyone needs no settling.
		held, _, err := c.x.backend.Check(c.conn.Context(), mutex, b.token)
		if err != nil {
			break // a store that does not answer is not asked again for each lease
		}
		if !held {
			delete(c.session.byMutex, mutex)
		}
	}
	c.session.sweepAt = max(firstSweep, 2*len(c.session.byMutex))
}

// bindUnknown notes that SESSION may have bound a lease: the store did not say, or refused
// after it had done a part. If it did, the session's end releases it; if not, that
// changes nothing.
func (c *client) bindUnknown(a *acquisition, err error) {
	lost, refusal := (*simba.UnavailableError)(nil), (*simba.MisconfiguredError)(nil)
	unknown := errors.As(err, &lost) || errors.As(err, &refusal)
	if _, bound := c.session.byMutex[a.Mutex]; a.session && !bound && unknown {
		c.bind(a.Mutex, a.Contender, unknownToken)
	}
}

// unknownToken is no tenure's.
const unknownToken = 0

// InUse reports whether the connection owns a lease by SESSION, which its end would release. It is
// a resp.Config.InUse.
func (x *Commands) InUse(conn *resp.Conn) bool {
	c, ok := conn.State().(*client)
	return ok && c.ownsBoundLease()
}

// ownsBoundLease reports whether a lease runs that SESSION bound to this connection, or may run
// since the store does not say. It forgets those that have ended.
func (c *client) ownsBoundLease() bool {
	for mutex, b := range c.session.byMutex {
		// What is not told to anyone needs no settling.
		t, _, err := c.x.backend.Owner(c.conn.Context(), mutex)
		switch {
		case err != nil, t.Token == b.token && t.Token != 0:
			return true
		case b.token != unknownToken:
			delete(c.session.byMutex, mutex)
		case t.Owner == b.contender:
			return true
		}
	}
	return false
}

// releaseSession gives up what is bound to the connection, which is closed. What it
// cannot give up, since the store does not answer, ends with its windows.
func (c *client) releaseSession() {
	if len(c.session.byMutex) == 0 {
		return
	}
	ctx := context.Background() // the connection's has ended
	kept, cause := 0, error(nil)
	for mutex, b := range c.session.byMutex {
		began := time.Now()
		_, seq, err := c.backend().Release(ctx, simba.ReleaseRequest{
			Mutex: mutex, Contender: b.contender, Session: c.conn.ID(), Reason: "session closed",
		})
		if err != nil {
			kept, cause = kept+1, err
			c.lost().met(err)
			c.lost().note(time.Since(began))
			c.x.storeFaults.met(err)
		}
		c.conn.RestOn(seq)
	}
	if kept > 0 {
		c.x.log.Warn("cannot release leases of a closed session; they will expire", "leases", kept, "err", cause)
	}
	if err := c.conn.Commit(); err != nil {
		c.x.log.Warn("cannot settle the leases of a closed session", "err", err)
	}
}
