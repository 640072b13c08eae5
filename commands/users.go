package commands

import (
	"errors"

	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// errUserGone is the last reply of a connection whose user was removed.
const errUserGone replyError = "NOAUTH the user of this connection was removed."

// RequireAuth reports whether clients must authenticate: the default user is off, or has a
// password. It is a resp.Config.RequireAuth.
func (x *Commands) RequireAuth() bool {
	u := x.users.Default().User()
	return !u.Enabled() || !u.NeedsNoPassword()
}

// begin sets the user of a new connection: the user that the certificate names, if that user exists
// and is on, else the default user.
func (c *client) begin() {
	c.account.Store(c.x.users.Default())
	// If an operator sets a password later, this connection stays authenticated, as in Redis.
	c.conn.SetAuthenticated(!c.x.RequireAuth())
	name := c.x.certificateName(c.conn)
	if name == "" {
		return
	}
	if account := c.x.users.Find(name); account != nil {
		if u := account.User(); u != nil && u.Enabled() {
			c.become(account)
		}
	}
}

func (c *client) become(account *access.Account) {
	c.account.Store(account)
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
	if c.executing { // a delay would block EXEC
		return errNoMulti
	}
	host := hostOf(c.conn.RemoteAddr())
	c.pause(c.x.loginDelays.beforeCheck(host))
	if account := c.x.users.Authenticate(name, password); account != nil {
		c.become(account)
		return nil
	}
	c.x.failedLogin(name, c.conn.RemoteAddr())
	c.pause(c.x.loginDelays.failed(host))
	return errWrongPass
}

func (c *client) judge(u *access.User, e *entry, args [][]byte) error {
	d := e.deny(u, args)
	if d == nil {
		return nil
	}
	if c.executing {
		return d.inExec()
	}
	return d.direct()
}

// failedLogin counts and logs a wrong password.
func (x *Commands) failedLogin(name []byte, addr string) {
	x.denials[deniedAuth].Add(1)
	x.audit.failedLogin(name, addr)
}

// noteDenial counts and logs a denial. It ignores other errors.
func (c *client) noteDenial(err error, context string) {
	d := (*denial)(nil)
	if !errors.As(err, &d) {
		return
	}
	c.x.denials[d.reason].Add(1)
	c.x.audit.denied(whoAsked(c), d, context)
}

// rejudge applies changed rules at once to clients that wait or listen, because such a client may
// never send another command. It ends blocked requests that the rules no longer allow. It closes
// connections with subscriptions or a MONITOR that the rules no longer allow. caller is the
// connection that caused the change.
func (x *Commands) rejudge(caller *client, changed []*access.Account) {
	affected := make(map[*access.Account]bool, len(changed))
	for _, a := range changed {
		affected[a] = true
	}
	for _, conn := range x.server.Conns() {
		c, ok := conn.State().(*client)
		if !ok || !affected[c.account.Load()] {
			continue
		}
		u := c.user()
		switch call := c.waiting.Load(); {
		case u == nil || !c.mayGoOnListening(u):
			if c == caller {
				conn.CloseAfterReply()
			} else {
				conn.Close()
			}
		case call != nil:
			call.judge(c)
		}
	}
}

// endIfRevoked closes the connection if the user's rules have changed since admit and no longer
// allow its subscriptions or its MONITOR.
func (c *client) endIfRevoked() {
	if u := c.user(); u != c.judged && (u == nil || !c.mayGoOnListening(u)) {
		c.conn.CloseAfterReply()
	}
}

// mayGoOnListening reports whether the rules allow all subscriptions of the connection, and its
// MONITOR.
func (c *client) mayGoOnListening(u *access.User) bool {
	if u.Unlimited() {
		return true
	}
	if c.monitoring.Load() && !u.MayRun(c.x.table.byName["monitor"].id) {
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
