package commands

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// client is the state of one connection. Handlers are its methods and run on the connection's
// goroutine. Other goroutines use only its atomic fields and its monitor.
type client struct {
	x    *Commands
	conn *resp.Conn
	w    *resp.Writer // where replies go

	call   call   // the command that runs
	permit permit // of this command
	noTx   keyTx  // for a command outside a transaction, see withoutTx

	// The server sends the replies of a batch of commands together. batch is the number of the
	// batch that outage belongs to. When a new batch has begun, the method lost replaces both.
	outage outage
	batch  uint64

	multi   multiState
	session sessionLeases
	monitor monitor

	account atomic.Pointer[access.Account] // the user of the connection
	waiting atomic.Pointer[blockedCall]    // the SIMBA.ACQUIRE that is blocked; nil = none
	waiter  atomic.Pointer[waiter]         // bound by SIMBA.NEXT; nil = none
	last    atomic.Pointer[entry]          // the last command, for CLIENT LIST
	library atomic.Pointer[library]        // for CLIENT LIST
}

type library struct{ name, version string }

// client returns the state of conn. The first call for conn creates the state.
func (x *Commands) client(conn *resp.Conn) *client {
	if c, ok := conn.State().(*client); ok {
		return c
	}
	c := &client{x: x, conn: conn, w: conn.Reply(), monitor: monitor{conn: conn}}
	c.multi.queued.Store(-1)
	c.begin()
	conn.SetState(c)
	return c
}

// admit returns why e must not run on this connection now, or nil.
func (c *client) admit(e *entry, args [][]byte) (err error) {
	c.permit, err = c.x.gate.admit(c.conn, c.user(), &c.multi, e, args)
	return err
}

// reject replies with err to a command that does not run. If the command does not exist, e is nil.
func (c *client) reject(e *entry, err error) {
	if e != nil {
		e.tally.rejected.Add(1)
	}
	c.noteDenial(err, c.multi.where())
	switch {
	case e != nil && e.full == "exec":
		c.multi.end(c.x.store.keyspace)
		err = replyError("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(wireText(err), "ERR "))
	case c.multi.tx != nil:
		c.multi.tx.broken = true
	}
	c.fail(err)
}

func (c *client) run(e *entry, args [][]byte) {
	c.call = call{entry: e, args: args, conn: c.conn, account: c.account.Load()}
	c.x.observers.begins(&c.call)
	c.call.started = c.x.age()
	c.last.Store(e)
	if c.call.err = c.refusal(e, args); c.call.err == nil {
		c.call.err = e.run(c, args)
	}
	if c.call.err != nil {
		c.fail(c.call.err)
	}
	c.session.count(&c.x.observers.stats.sessions)
	c.call.took = c.x.age() - c.call.started - c.call.parked
	if c.call.err != nil {
		c.lost().met(c.call.err, c.call.took)
	}
	c.x.observers.ended(&c.call)
}

// yield lets other connections run in the middle of a command. The pause does not count as time of
// the command.
func (c *client) yield() { c.call.parked += c.conn.Yield() }

// lost returns the outage of the current batch. Each batch begins with a new outage.
func (c *client) lost() *outage {
	if now := c.conn.Batch(); c.batch != now {
		c.batch, c.outage = now, outage{}
	}
	return &c.outage
}

// refusal returns the error of the store if the current batch has lost too much time to the store, and
// the command needs it. Otherwise it returns nil.
func (c *client) refusal(e *entry, args [][]byte) error {
	inMemory := e.full == "simba.history" || e.full == "simba.release" && len(args) > 3 && equalFold(args[3], "VIA")
	if inMemory || !e.has(readonly|write) || !c.outage.over() || !c.lost().over() { // the outage may be of an earlier batch
		return nil
	}
	switch e.full {
	case "simba.acquire":
		c.x.observers.stats.acquires.add(0)
	case "simba.guard":
		c.x.observers.stats.guards.add(0)
	}
	return c.outage.err
}

// backend returns the backend. A handler that calls it passes the Seq of the result to
// Conn.ReplyAfter, or returns an error.
func (c *client) backend() simba.Backend { return c.x.store.backend }

// fail replies with an error, and counts it.
func (c *client) fail(err error) {
	text := wireText(err)
	c.conn.ReplyAfter(0) // the request may have caused notices before it failed
	c.x.store.faults.met(err)
	c.x.observers.stats.errors.add(err)
	c.w.Error(text)
}

// pause makes the command wait for d. The wait ends early if the client disconnects or the server
// stops.
func (c *client) pause(d time.Duration) {
	if d > 0 {
		began := time.Now()
		c.conn.NewWait().Await(began.Add(d))
		c.call.parked += time.Since(began)
	}
}

// begin sets the user of a new connection: the user that the certificate names, if that user exists
// and is on, else the default user.
func (c *client) begin() {
	c.account.Store(c.x.gate.users.Default())
	// If an operator sets a password later, this connection stays authenticated, as in Redis.
	c.conn.SetAuthenticated(!c.x.gate.requireAuth())
	if account := c.x.gate.byCertificate(c.conn.CertificateName()); account != nil {
		c.become(account)
	}
}

func (c *client) become(account *access.Account) {
	if c.account.Swap(account) != account {
		c.endWaiter() // it belongs to the other user
	}
	c.conn.SetAuthenticated(true)
}

// user returns the connection's user with the present rules; nil = the user was removed.
func (c *client) user() *access.User { return c.account.Load().User() }

// userName returns the name of a connection's user. Any goroutine may call it.
func userName(conn *resp.Conn) string {
	if c, ok := conn.State().(*client); ok {
		return c.account.Load().Name()
	}
	return access.DefaultName
}

// authenticate logs the connection in. If the password is wrong, it returns an error after a delay.
func (c *client) authenticate(name, password []byte) error {
	if c.multi.executing { // a delay would block EXEC
		return errNoMulti
	}
	account := c.x.login(name, password, c.conn.RemoteAddr(), c.pause)
	if account == nil {
		return errWrongPass
	}
	c.become(account)
	return nil
}

// login returns the account of that name, nil if the password is wrong. addr is that of the client.
func (x *Commands) login(name, password []byte, addr string, pause func(time.Duration)) *access.Account {
	host := hostOf(addr)
	pause(x.gate.delays.beforeCheck(host))
	account := x.gate.users.Authenticate(name, password)
	if account == nil {
		x.observers.failedLogin(name, addr)
		pause(x.gate.delays.failed(host))
	}
	return account
}

// noteDenial counts and logs a denial. It ignores other errors.
func (c *client) noteDenial(err error, context string) {
	if d, ok := errors.AsType[*denial](err); ok {
		c.x.observers.denied(c.account.Load().Name(), c.conn.RemoteAddr(), d, context)
	}
}

// endIfRevoked closes the connection if the user's rules have changed since admit and no longer
// allow its subscriptions or its MONITOR.
func (c *client) endIfRevoked() {
	if u := c.user(); u != c.permit.user && (u == nil || !c.mayGoOnListening(u)) {
		c.conn.CloseAfterReply()
	}
}

// mayGoOnListening reports whether the rules allow all subscriptions of the connection, and its
// MONITOR.
func (c *client) mayGoOnListening(u *access.User) bool {
	if u.Unlimited() {
		return true
	}
	if c.monitor.on.Load() && !u.MayRun(c.x.table.byName["monitor"].id) {
		return false
	}
	for kind, may := range map[resp.Kind]func(*access.User, string) bool{
		resp.KindChannel: mayListen, resp.KindShard: mayListen, resp.KindPattern: (*access.User).MayUsePattern,
	} {
		for _, name := range c.conn.Subscriptions(kind) {
			if !may(u, name) {
				return false
			}
		}
	}
	return true
}

type blockedCall struct {
	mutex, contender string
	wait             *resp.Wait
	revoked          atomic.Pointer[denial] // why the user may not wait any more; nil = may wait
}

// judge ends the wait if the user's rules no longer allow the ACQUIRE.
func (b *blockedCall) judge(c *client) {
	if d := c.x.mayNot(c.user(), "simba.acquire", b.mutex, b.contender); d != nil {
		b.revoked.Store(d)
		b.wait.Wake()
	}
}

// mayNot returns why a user may not send a command, or nil. It returns nil for a removed user, whose
// connections are closed.
func (x *Commands) mayNot(u *access.User, command string, args ...string) *denial {
	if u == nil {
		return nil
	}
	call := [][]byte{nil}
	for _, arg := range args {
		call = append(call, []byte(arg))
	}
	return x.table.byName[command].deny(u, call)
}

// stats returns the engine's figures. The reply waits until the counted changes are durable.
func (c *client) stats() simba.Stats {
	s := c.backend().Stats()
	c.conn.ReplyAfter(s.Seq)
	return s
}
