package commands

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// client is the state of one connection. Handlers are its methods and run on the connection's
// goroutine. Other goroutines use only its atomic fields and the mutex watching.
type client struct {
	x    *Commands
	conn *resp.Conn
	w    *resp.Writer // where replies go

	// These fields describe the command that runs.
	running *entry
	started time.Duration // since the server's start
	parked  time.Duration // how long the command has waited or paused

	// The server sends the replies of a batch of commands together. batch is the number of the
	// batch that outage belongs to. When a new batch has begun, the method lost replaces both.
	outage outage
	batch  uint64

	tx        *transaction // between MULTI and EXEC
	executing bool         // inside EXEC
	watched   watches      // the keys of WATCH
	session   sessionLeases
	backup    *runningBackup // nil = none

	// watching is held while the field monitoring changes, and while a line of MONITOR is pushed.
	watching   sync.Mutex
	monitoring atomic.Bool // the client has sent MONITOR; set under watching

	judged  *access.User                   // the user and rules by which admit decided last
	full    bool                           // maxmemory was exceeded when admit ran last
	account atomic.Pointer[access.Account] // the user of the connection
	waiting atomic.Pointer[blockedCall]    // the SIMBA.ACQUIRE that is blocked; nil = none

	// A CLIENT LIST of any connection reads these fields.
	last    atomic.Pointer[entry]
	queued  atomic.Int32 // commands queued by MULTI, -1 outside
	library atomic.Pointer[library]
}

type library struct{ name, version string }

// client returns the state of conn. The first call for conn creates the state.
func (x *Commands) client(conn *resp.Conn) *client {
	if c, ok := conn.State().(*client); ok {
		return c
	}
	c := &client{x: x, conn: conn, w: conn.Reply()}
	c.queued.Store(-1)
	c.begin()
	conn.SetState(c)
	return c
}

// admit returns why e must not run on this connection now, or nil.
func (c *client) admit(e *entry, args [][]byte) error {
	u := c.user()
	c.judged = u
	c.full = c.x.memory.exceeded()
	switch {
	case u == nil:
		c.conn.CloseAfterReply()
		return errUserGone
	case !c.conn.Authenticated() && !e.has(noAuth) && c.x.RequireAuth():
		return errNoAuth
	case c.tx != nil && e.has(noMulti|unqueued):
		return errNoMulti
	}
	if !u.Unlimited() {
		if err := c.judge(u, e, args); err != nil {
			return err
		}
	}
	switch {
	case c.full && c.mayGrow(e):
		return simba.ErrOutOfMemory
	case !e.has(subMode) && c.onlySubscribes():
		return replyErrorf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", e.full)
	}
	return nil
}

// onlySubscribes reports whether the connection uses RESP2 and has subscriptions. Its client cannot
// distinguish messages from ordinary replies.
func (c *client) onlySubscribes() bool {
	return c.conn.SubscriptionCount() > 0 && c.w.Proto() == 2
}

// reject replies with err to a command that does not run. If the command does not exist, e is nil.
func (c *client) reject(e *entry, err error) {
	if e != nil {
		e.tally.rejected.Add(1)
	}
	c.noteDenial(err, c.where())
	switch {
	case e != nil && e.full == "exec":
		c.endTransaction()
		err = replyError("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(wireText(err), "ERR "))
	case c.tx != nil:
		c.tx.broken = true
	}
	c.fail(err)
}

func (c *client) run(e *entry, args [][]byte) {
	if !e.has(secret | unmonitored) {
		c.x.monitors.feed(c, args)
	}

	c.started = c.x.age()
	c.running, c.parked = e, 0
	c.last.Store(e)
	started := c.started
	err := e.run(c, args)
	if err != nil {
		c.fail(err)
	}
	c.countSession()
	took := c.x.age() - started - c.parked
	c.outage.note(took)
	c.record(e, args, took, err != nil)
}

func (c *client) where() string {
	if c.tx != nil || c.executing {
		return "multi"
	}
	return "toplevel"
}

// record adds a command that has run to the statistics and, if it is audited, to the audit log.
func (c *client) record(e *entry, args [][]byte, took time.Duration, failed bool) {
	e.tally.add(took, failed)
	c.x.slowlog.consider(c, e, args, took)
	if e.has(audited) {
		c.x.audit.command(c, e, args, failed)
	}
}

// yield lets other connections run in the middle of a command. The pause does not count as time of
// the command.
func (c *client) yield() { c.parked += c.conn.Yield() }

// lost returns the outage of the current batch. Each batch begins with a new outage.
func (c *client) lost() *outage {
	if now := c.conn.Batch(); c.batch != now {
		c.batch, c.outage = now, outage{}
	}
	return &c.outage
}

// backend returns the backend for this client's calls. If the current batch has lost too much time
// to the store, the returned backend fails without calling the store. A handler that calls the
// backend passes the Seq of the result to Conn.ReplyAfter, or returns an error.
func (c *client) backend() simba.Backend {
	if c.outage.over() && c.lost().over() { // the outage may be of an earlier batch
		return refusing{c.x.backend, c.outage.err}
	}
	return c.x.backend
}

func (c *client) writeField(name, value string) {
	c.w.BulkString(name)
	c.w.BulkString(value)
}

func (c *client) writeNumber(name string, value int64) {
	c.w.BulkString(name)
	c.w.Int(value)
}
