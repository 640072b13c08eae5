package commands

import (
	"bytes"
	"math"

	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

var connectionCommands = []command{
	{
		name: "auth", arity: -2, flags: control | fast | noAuth | allowBusy | secret, since: "1.0.0", run: (*client).auth,
		summary: "Authenticate to the server",
		args:    "[username] password",
	},
	{
		name: "echo", arity: 2, flags: loading | stale | fast, since: "1.0.0", run: withoutTx(echo), keyed: echo,
		summary: "Echo the given string",
		args:    "message",
	},
	{
		name: "hello", arity: -1, flags: control | fast | noAuth | allowBusy | secret, since: "6.0.0", run: (*client).hello,
		summary: "Handshake with the server",
		args:    "[protover [AUTH username password] [SETNAME clientname]]",
	},
	{
		name: "ping", arity: -1, flags: fast | subMode, since: "1.0.0", run: withoutTx(ping), keyed: ping,
		summary: "Ping the server",
		args:    "[message]",
	},
	{
		name: "quit", arity: -1, flags: control | fast | noAuth | allowBusy | immediate | subMode, since: "1.0.0", run: (*client).quit,
		summary: "Close the connection",
	},
	{
		name: "reset", arity: 1, flags: control | fast | noAuth | allowBusy | immediate | subMode, since: "6.2.0", run: (*client).reset,
		summary: "Reset the connection",
	},
	{
		name: "select", arity: 2, flags: loading | stale | fast, since: "1.0.0", run: withoutTx(selectDB), keyed: selectDB,
		summary: "Change the selected database for the current connection; there is only 0",
		args:    "index",
	},
}

// redisVersion is the version of Redis that clients see. Some clients choose their commands by it.
const redisVersion = "7.2.0"

func (c *client) auth(args [][]byte) error {
	user, password := []byte(access.DefaultName), args[len(args)-1]
	switch {
	case len(args) > 3:
		return errSyntax
	case len(args) == 3:
		user = args[1]
	case c.x.gate.users.Default().User().NeedsNoPassword():
		return replyError("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	}
	if err := c.authenticate(user, password); err != nil {
		return err
	}
	c.w.Simple("OK")
	return nil
}

type handshake struct {
	proto          int // 0 = unchanged
	user, password []byte
	name           []byte // nil = unchanged
}

func parseHello(args [][]byte) (h handshake, err error) {
	if len(args) == 1 {
		return h, nil
	}
	proto, ok := parseInt(args[1])
	switch {
	case !ok:
		return h, replyError("ERR Protocol version is not an integer or out of range")
	case proto < 2 || proto > 3:
		return h, replyError("NOPROTO unsupported protocol version")
	}
	h.proto = int(proto)
	for i := 2; i < len(args); i++ {
		more := len(args) - 1 - i
		switch {
		case equalFold(args[i], "AUTH") && more >= 2:
			h.user, h.password = args[i+1], args[i+2]
			i += 2
		case equalFold(args[i], "SETNAME") && more >= 1:
			h.name = args[i+1]
			i++
			if err := checkClientName(h.name); err != nil {
				return h, err
			}
		default:
			return h, replyErrorf("ERR Syntax error in HELLO option '%s'", shorten(args[i]))
		}
	}
	return h, nil
}

func (c *client) hello(args [][]byte) error {
	h, err := parseHello(args)
	if err == nil && h.user != nil {
		err = c.authenticate(h.user, h.password)
	}
	if err == nil && !c.conn.Authenticated() && c.x.gate.requireAuth() {
		err = replyError("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	if err != nil {
		return err
	}
	if h.name != nil {
		c.conn.SetName(string(h.name))
	}
	if h.proto != 0 {
		c.conn.SetProto(h.proto)
	}
	w := c.w
	w.Map(7)
	w.Pairs(
		"server", "redis",
		"version", redisVersion,
		"proto", int64(w.Proto()),
		"id", int64(c.conn.ID()),
		"mode", c.x.mode,
		"role", c.x.role,
	)
	w.BulkString("modules")
	w.Array(0)
	return nil
}

func echo(t *keyTx, args [][]byte) error {
	t.w.Bulk(args[1])
	return nil
}

// ping replies with PONG. A RESP2 connection with subscriptions gets the reply in the form of a
// message, because its client expects only messages.
func ping(t *keyTx, args [][]byte) error {
	switch {
	case len(args) > 2:
		return replyError("ERR wrong number of arguments for 'ping' command")
	case onlySubscribes(t.c.conn):
		writeStrings(t.w, []string{"pong", string(bytes.Join(args[1:], nil))})
	case len(args) == 2:
		t.w.Bulk(args[1])
	default:
		t.w.Simple("PONG")
	}
	return nil
}

func (c *client) quit([][]byte) error {
	c.w.Simple("OK")
	c.conn.CloseAfterReply()
	return nil
}

// reset gives the connection the state of a new connection, except that it keeps its leases.
func (c *client) reset([][]byte) error {
	c.multi.end(c.x.store.keyspace)
	c.x.backups.end(c.conn)
	c.endWaiter()
	c.x.observers.monitors.remove(&c.monitor)
	c.conn.SetAwaitsPushes(false)
	for _, kind := range [...]resp.Kind{resp.KindChannel, resp.KindPattern, resp.KindShard} {
		for _, channel := range c.conn.Subscriptions(kind) {
			c.conn.Unsubscribe(kind, channel)
		}
	}
	c.conn.SetName("")
	c.conn.SetProto(2)
	c.begin()
	c.w.Simple("RESET")
	return nil
}

func selectDB(t *keyTx, args [][]byte) error {
	switch n, ok := parseInt(args[1]); {
	case !ok:
		return errNotInteger
	case n != int64(int32(n)):
		return replyErrorf("ERR value is out of range, value must between %d and %d", math.MinInt32, math.MaxInt32)
	case n != 0:
		return replyError("ERR DB index is out of range")
	}
	t.w.Simple("OK")
	return nil
}
