package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

var clientCommands = []command{
	{
		name: "client", arity: -2, since: "2.4.0",
		summary: "A container for client connection commands",
		subs: []command{
			{
				name: "getname", arity: 2, flags: control, since: "2.6.9", run: (*client).clientGetName,
				summary: "Get the current connection name",
			},
			{
				name: "id", arity: 2, flags: control, since: "5.0.0", run: (*client).clientID,
				summary: "Returns the client ID for the current connection",
			},
			{
				name: "info", arity: 2, flags: control, since: "6.2.0", run: (*client).clientInfo,
				summary: "Returns information about the current client connection.",
			},
			{
				name: "kill", arity: -3, flags: adminControl, since: "2.4.0", run: (*client).clientKill,
				summary: "Kill the connection of a client",
				args:    "<ip:port | ID client-id | USER username | ADDR ip:port | SKIPME yes/no>",
			},
			{
				name: "list", arity: -2, flags: adminControl, since: "2.4.0", run: (*client).clientList,
				summary: "Get the list of client connections",
			},
			{
				name: "setinfo", arity: 4, flags: control, since: "7.2.0", run: (*client).clientSetInfo,
				summary: "Set client or connection specific info",
				args:    "<LIB-NAME libname | LIB-VER libver>",
			},
			{
				name: "setname", arity: 3, flags: control, since: "2.6.9", run: (*client).clientSetName,
				summary: "Set the current connection name",
				args:    "connection-name",
			},
			{
				name: "tracking", arity: -3, flags: control, since: "6.0.0", run: (*client).clientTracking,
				summary: "Enable or disable server assisted client side caching, which is not supported",
				args:    "<ON | OFF>",
			},
			{
				name: "unblock", arity: -3, flags: adminControl, since: "5.0.0", run: (*client).clientUnblock,
				summary: "Unblock a client blocked in a blocking command from a different connection",
				args:    "client-id [TIMEOUT | ERROR]",
			},
		},
	},
}

// maxClientName is the longest name of a client or a library, in bytes. It bounds the memory of
// CLIENT LIST and of the slow log.
const maxClientName = 128

func (c *client) clientID([][]byte) error {
	c.w.Int(int64(c.conn.ID()))
	return nil
}

func (c *client) clientGetName([][]byte) error {
	if name := c.conn.Name(); name != "" {
		c.w.BulkString(name)
	} else {
		c.w.Null()
	}
	return nil
}

// printable reports whether b has only visible ASCII characters. Blanks separate the fields of
// CLIENT LIST, so a name must have none.
func printable(b []byte) bool {
	return !slices.ContainsFunc(b, func(ch byte) bool { return ch < '!' || ch > '~' })
}

func checkClientName(name []byte) error {
	if !printable(name) {
		return replyError("ERR Client names cannot contain spaces, newlines or special characters.")
	}
	return checkLength("client name", name, maxClientName)
}

func (c *client) clientSetName(args [][]byte) error {
	if err := checkClientName(args[2]); err != nil {
		return err
	}
	c.conn.SetName(string(args[2]))
	c.w.Simple("OK")
	return nil
}

func (c *client) clientSetInfo(args [][]byte) error {
	lib := library{}
	if l := c.library.Load(); l != nil {
		lib = *l
	}
	option := strings.ToUpper(string(shorten(args[2])))
	field := map[string]*string{"LIB-NAME": &lib.name, "LIB-VER": &lib.version}[option]
	switch {
	case field == nil:
		return replyErrorf("ERR Unrecognized option '%s'", shorten(args[2]))
	case !printable(args[3]):
		return replyErrorf("ERR %s cannot contain spaces, newlines or special characters.", args[2])
	}
	if err := checkLength(option, args[3], maxClientName); err != nil {
		return err
	}
	*field = string(args[3])
	c.library.Store(&lib)
	c.w.Simple("OK")
	return nil
}

func (c *client) clientTracking(args [][]byte) error {
	switch {
	case equalFold(args[2], "OFF"):
		c.w.Simple("OK")
	case equalFold(args[2], "ON"):
		return replyError("ERR client side caching is not supported: this server keeps locks, not values")
	default:
		return errSyntax
	}
	return nil
}

func (c *client) clientInfo([][]byte) error {
	c.w.Verbatim("txt", describe(c.conn, time.Now())+"\n")
	return nil
}

func (c *client) clientList(args [][]byte) error {
	if len(args) > 2 {
		return replyError("ERR CLIENT LIST serves no options: this is a lock server")
	}
	now := time.Now()
	var text strings.Builder
	for _, conn := range c.x.server.Conns() {
		text.WriteString(describe(conn, now))
		text.WriteByte('\n')
		c.yield()
	}
	c.w.Verbatim("txt", text.String())
	return nil
}

// describe returns a connection's line in CLIENT LIST. The line has the fields of Redis, except
// most memory figures.
func describe(conn *resp.Conn, now time.Time) string {
	c, ok := conn.State().(*client)
	if !ok {
		c = new(client) // the connection has sent no command yet
		c.multi.queued.Store(-1)
	}
	lastCommand := "NULL"
	if e := c.last.Load(); e != nil {
		lastCommand = e.full
	}
	lib := c.library.Load()
	if lib == nil {
		lib = new(library)
	}
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d idle=%d flags=%s db=0 sub=%d psub=%d ssub=%d multi=%d"+
		" omem=%d cmd=%s user=%s redir=-1 resp=%d lib-name=%s lib-ver=%s",
		conn.ID(), conn.RemoteAddr(), conn.LocalAddr(), conn.Name(),
		int64(now.Sub(conn.Created()).Seconds()), int64(now.Sub(conn.LastActive()).Seconds()), c.flags(conn),
		conn.SubscriptionCountOf(resp.KindChannel), conn.SubscriptionCountOf(resp.KindPattern), conn.SubscriptionCountOf(resp.KindShard),
		c.multi.queued.Load(), conn.OutputQueued(),
		lastCommand, userName(conn), conn.Proto(), lib.name, lib.version)
}

func (c *client) flags(conn *resp.Conn) string {
	var letters []byte
	for _, f := range [...]struct {
		set    bool
		letter byte
	}{
		{c.monitor.on.Load(), 'O'},
		{conn.SubscriptionCount() > 0, 'P'},
		{c.multi.queued.Load() >= 0, 'x'},
		{conn.Blocked() || c.waiter.Load() != nil, 'b'}, // also between two SIMBA.NEXT
		{conn.UnixSocket() != "", 'U'},
	} {
		if f.set {
			letters = append(letters, f.letter)
		}
	}
	if letters == nil {
		return "N"
	}
	return string(letters)
}

// victims has the filters of a CLIENT KILL, which kills the connections that match all filters.
type victims struct {
	id     uint64
	addr   string
	user   string
	skipMe bool
}

func parseKill(args [][]byte) (v victims, err error) {
	v.skipMe = true
	if len(args)%2 != 0 {
		return v, errSyntax
	}
	for i := 2; i < len(args); i += 2 {
		value := args[i+1]
		switch {
		case equalFold(args[i], "ID"):
			id, ok := parseInt(value)
			if !ok || id < 1 {
				return v, replyError("ERR client-id should be greater than 0")
			}
			v.id = uint64(id)
		case equalFold(args[i], "ADDR"):
			v.addr = string(value)
		case equalFold(args[i], "USER"):
			v.user = string(value)
		case equalFold(args[i], "SKIPME") && (equalFold(value, "YES") || equalFold(value, "NO")):
			v.skipMe = equalFold(value, "YES")
		case equalFold(args[i], "TYPE"), equalFold(args[i], "LADDR"), equalFold(args[i], "MAXAGE"):
			return v, replyError("ERR CLIENT KILL serves only the filters ADDR, ID, SKIPME and USER: this is a lock server")
		default:
			return v, errSyntax
		}
	}
	return v, nil
}

func (v *victims) match(conn *resp.Conn) bool {
	return (v.id == 0 || conn.ID() == v.id) &&
		(v.addr == "" || conn.RemoteAddr() == v.addr) &&
		(v.user == "" || userName(conn) == v.user)
}

// clientKill serves two forms of CLIENT KILL. The form with one address replies OK. The form with
// filters replies with the number of killed connections.
func (c *client) clientKill(args [][]byte) error {
	if len(args) == 3 {
		if c.kill(victims{addr: string(args[2])}) == 0 {
			return replyError("ERR No such client")
		}
		c.w.Simple("OK")
		return nil
	}
	v, err := parseKill(args)
	if err == nil && v.user != "" && c.x.gate.users.Find(v.user) == nil {
		err = replyErrorf("ERR No such user '%s'", shorten([]byte(v.user)))
	}
	if err != nil {
		return err
	}
	c.w.Int(int64(c.kill(v)))
	return nil
}

func (c *client) kill(v victims) (killed int) {
	for _, conn := range c.x.server.Conns() {
		switch {
		case !v.match(conn):
			continue
		case conn != c.conn:
			conn.Close()
		case v.skipMe:
			continue
		default:
			conn.CloseAfterReply()
		}
		killed++
	}
	return killed
}

func (c *client) clientUnblock(args [][]byte) error {
	id, ok := parseInt(args[2])
	if !ok {
		return errNotInteger
	}
	asError := false
	switch {
	case len(args) > 4:
		return tryHelp(c.call.entry, args)
	case len(args) == 3 || equalFold(args[3], "TIMEOUT"):
	case equalFold(args[3], "ERROR"):
		asError = true
	default:
		return replyError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
	}
	conn := c.x.server.Conn(uint64(id))
	return c.replyYes(conn != nil && conn.Unblock(asError), 0, nil)
}
