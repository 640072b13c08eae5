package commands

import (
	"log/slog"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// gate decides whether a command may run: by the login, the user's rules, the memory, and the modes
// of the connection.
type gate struct {
	users  *access.Accounts
	delays loginDelays
	memory memoryLimit
	waits  waitLimit
}

// permit is what the gate knew when it decided last.
type permit struct {
	user *access.User // with the rules at that time; nil = the user was removed
	full bool         // maxmemory was exceeded
}

// errUserGone is the last reply of a connection whose user was removed.
const errUserGone replyError = "NOAUTH the user of this connection was removed."

// admit returns why e must not run on a connection of user u now, or nil.
func (g *gate) admit(conn *resp.Conn, u *access.User, m *multiState, e *entry, args [][]byte) (permit, error) {
	p := permit{u, g.memory.exceeded()}
	switch {
	case u == nil:
		conn.CloseAfterReply()
		return p, errUserGone
	case !conn.Authenticated() && !e.has(noAuth) && g.requireAuth():
		return p, errNoAuth
	case m.tx != nil && e.has(noMulti|unqueued):
		return p, errNoMulti
	}
	if d := e.deny(u, args); d != nil {
		d.inExec = m.executing
		return p, d
	}
	switch {
	case p.full && m.mayGrow(e):
		return p, simba.ErrOutOfMemory
	case !e.has(subMode) && onlySubscribes(conn):
		return p, replyErrorf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", e.full)
	}
	return p, nil
}

// onlySubscribes reports whether the connection uses RESP2 and has subscriptions. Its client cannot
// distinguish messages from ordinary replies.
func onlySubscribes(conn *resp.Conn) bool {
	return conn.SubscriptionCount() > 0 && conn.Reply().Proto() == 2
}

// requireAuth reports whether clients must authenticate: the default user is off, or has a
// password.
func (g *gate) requireAuth() bool {
	u := g.users.Default().User()
	return !u.Enabled() || !u.NeedsNoPassword()
}

// byCertificate returns the account that a client certificate names, if the user exists and is on.
// name is the common name of the verified certificate, "" = none.
func (g *gate) byCertificate(name string) *access.Account {
	account := g.users.Find(name)
	if u := account.User(); u == nil || !u.Enabled() {
		return nil
	}
	return account
}

// memoryLimit compares the memory of the engine's mutexes with maxmemory. The zero memoryLimit has
// no limit.
//
// The server checks at the start of a command, a transaction or a script. So concurrent commands
// can together exceed the limit.
type memoryLimit struct {
	bytes  atomic.Uint64 // 0 = no limit
	used   func() uint64
	log    *slog.Logger
	logged atomic.Bool // the last log line was the warning that the limit is exceeded
}

// exceeded reports whether commands that take memory are refused.
func (l *memoryLimit) exceeded() bool {
	limit := l.bytes.Load()
	if limit == 0 {
		return false
	}
	used := l.used()
	switch logged := l.logged.Load(); {
	case !logged && used > limit:
		if l.logged.CompareAndSwap(false, true) {
			l.log.Warn("used memory is above maxmemory: refusing commands that take more", "used", used, "maxmemory", limit)
		}
	case logged && used <= limit-limit/8: // an eighth below the limit, to log few lines near it
		l.clear(used, limit)
	}
	return used > limit
}

// clear logs that the server accepts all commands again. It does nothing if the warning was not
// logged.
func (l *memoryLimit) clear(used, limit uint64) {
	if l.logged.CompareAndSwap(true, false) {
		l.log.Info("used memory is no longer above maxmemory: accepting all commands", "used", used, "maxmemory", limit)
	}
}

// set changes the limit; 0 = no limit.
func (l *memoryLimit) set(limit uint64) {
	l.bytes.Store(limit)
	if limit == 0 {
		l.clear(l.used(), 0)
		return
	}
	l.exceeded() // logs at once if the new limit is exceeded
}

// A server above maxmemory is full. It refuses the commands that have the flag denyoom in the
// table, as Redis does. There is an exception: a command that can be a renewal runs, and fails only
// if it is none and needs memory. The engine decides this for SIMBA.ACQUIRE
// (simba.AcquireRequest.Full), and keyTx.mayGrow decides it for SET and similar commands.

// mayGrow reports whether a full server refuses e on this connection, whatever its arguments are.
//
// Inside MULTI a full server refuses nearly everything, as Redis does, because queued commands take
// memory. It queues only writes that need no memory, such as GUARD, RELEASE and DEL. It does not
// queue ACQUIRE and SET, which may renew a lease, but may also need memory.
func (m *multiState) mayGrow(e *entry) bool {
	switch {
	case m.tx == nil:
		return e.has(denyoom) && !e.has(renewing)
	case e.has(immediate):
		return e.full == "exec" && m.tx.grows
	}
	return !e.has(write) || e.has(denyoom)
}

// waitLimit limits the connections that WAIT blocks to three quarters of maxclients, at least one.
// The other quarter is for owners, which must connect to renew their leases.
type waitLimit struct{ blocked atomic.Int64 }

// enter reports whether one more connection may be blocked. If so, the caller must call leave after
// the wait.
func (l *waitLimit) enter(maxClients int) bool {
	if l.blocked.Add(1) <= max(1, int64(maxClients)*3/4) {
		return true
	}
	l.leave()
	return false
}

func (l *waitLimit) leave() { l.blocked.Add(-1) }
