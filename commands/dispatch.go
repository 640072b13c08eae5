package commands

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// Opened implements resp.Handler. If the client has a certificate, Opened sets the user at once,
// because the limits for the first command depend on the user.
func (x *Commands) Opened(conn *resp.Conn) {
	if conn.CertificateName() != "" {
		x.client(conn)
	}
}

// Execute implements resp.Handler.
func (x *Commands) Execute(conn *resp.Conn, args [][]byte) {
	c := x.client(conn)
	e, err := x.table.find(args)
	if err == nil {
		err = c.admit(e, args)
	}
	switch {
	case err != nil:
		c.reject(e, err)
	case c.multi.tx != nil && !e.has(immediate):
		c.enqueue(e, args)
	default:
		c.run(e, args)
	}
}

// Closed implements resp.Handler. It releases the leases that SESSION bound to the connection. If
// the server is stopping, Closed keeps these leases, because the client will reconnect.
func (x *Commands) Closed(conn *resp.Conn) {
	c, ok := conn.State().(*client)
	if !ok {
		return
	}
	x.observers.monitors.remove(&c.monitor)
	c.multi.end(x.store.keyspace)
	x.backups.end(conn)
	c.endWaiter()
	if !conn.ServerStopping() {
		c.releaseSession()
	}
	clear(c.session.byMutex)
	c.session.count(&x.observers.stats.sessions)
}

// InUse reports whether the connection owns a lease that the server releases when the connection
// ends. It is a resp.Config.InUse.
func (x *Commands) InUse(conn *resp.Conn) bool {
	c, ok := conn.State().(*client)
	return ok && c.session.inUse(conn.Context(), x.store.backend)
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
		if c.lost().over() {
			kept, cause = kept+1, c.outage.err
			continue
		}
		began := time.Now()
		_, seq, err := c.backend().Release(ctx, simba.ReleaseRequest{
			Mutex: mutex, Contender: b.contender, Session: c.conn.ID(), Reason: "session closed",
		})
		if err != nil {
			kept, cause = kept+1, err
			c.lost().met(err, time.Since(began))
			c.x.store.faults.met(err)
		}
		c.conn.ReplyAfter(seq)
	}
	if kept > 0 {
		c.x.cfg.Logger.Warn("cannot release leases of a closed session; they will expire", "leases", kept, "err", cause)
	}
	if err := c.conn.Commit(); err != nil {
		c.x.cfg.Logger.Warn("cannot commit the release of leases of a closed session", "err", err)
	}
}
