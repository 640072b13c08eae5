package commands

import (
	"context"
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// sessionLeases are the leases that the option SESSION bound to one connection, by mutex. The
// backend stores the session of each lease too. When a session ends, the backend does not release a
// lease that another session has taken meanwhile.
type sessionLeases struct {
	byMutex map[string]boundLease
	sweepAt int  // the number of leases at which bind calls sweepSession
	counted bool // the connection is counted in Commands.sessions
}

type boundLease struct {
	contender string
	token     uint64 // unknownToken if the store did not report it
}

// firstSweep is the number of leases at which a session first forgets expired leases.
const firstSweep = 64

// bind records a lease that SESSION bound to this connection.
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

// unbind forgets the bound lease of a mutex if its tenure has ended. current is the present token
// of the mutex, 0 = free.
func (c *client) unbind(mutex string, current uint64) {
	if b, ok := c.session.byMutex[mutex]; ok && b.token != current && b.token != unknownToken {
		delete(c.session.byMutex, mutex)
	}
}

// sweepSession forgets expired leases. It runs when the number of leases has doubled since the last
// sweep. So the map has at most about twice the leases that the connection owns, and each lease
// costs a constant time.
func (c *client) sweepSession() {
	for mutex, b := range c.session.byMutex {
		if b.token == unknownToken {
			delete(c.session.byMutex, mutex) // by now the contender has asked again or given up
			continue
		}
		held, _, err := c.x.backend.Check(c.conn.Context(), mutex, b.token)
		if err != nil {
			break // the store does not answer; try again at the next sweep
		}
		if !held {
			delete(c.session.byMutex, mutex)
		}
	}
	c.session.sweepAt = max(firstSweep, 2*len(c.session.byMutex))
}

// bindUnknown records a lease that SESSION may have bound, if the store did not answer or refused a
// part of the request. When the session ends, the server tries to release the lease.
func (c *client) bindUnknown(a *acquisition, err error) {
	lost, refusal := (*simba.UnavailableError)(nil), (*simba.MisconfiguredError)(nil)
	unknown := errors.As(err, &lost) || errors.As(err, &refusal)
	if _, bound := c.session.byMutex[a.Mutex]; a.session && !bound && unknown {
		c.bind(a.Mutex, a.Contender, unknownToken)
	}
}

// unknownToken stands for a token that the store did not report. No tenure has it.
const unknownToken = 0

// InUse reports whether the connection owns a lease that the server releases when the connection
// ends. It is a resp.Config.InUse.
func (x *Commands) InUse(conn *resp.Conn) bool {
	c, ok := conn.State().(*client)
	return ok && c.ownsBoundLease()
}

// ownsBoundLease reports whether this connection owns a lease of SESSION. If the store does not
// answer, it returns true, because the connection may own one. It forgets leases that have ended.
func (c *client) ownsBoundLease() bool {
	for mutex, b := range c.session.byMutex {
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

// releaseSession releases the leases of a closed connection. If the store does not answer, the
// leases expire.
func (c *client) releaseSession() {
	if len(c.session.byMutex) == 0 {
		return
	}
	ctx := context.Background() // the context of the connection has ended
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
		c.conn.ReplyAfter(seq)
	}
	if kept > 0 {
		c.x.log.Warn("cannot release leases of a closed session; they will expire", "leases", kept, "err", cause)
	}
	if err := c.conn.Commit(); err != nil {
		c.x.log.Warn("cannot commit the release of leases of a closed session", "err", err)
	}
}
