package commands

import (
	"errors"
	"fmt"
	"strings"

	"github.com/simba-resp/simba-resp/access"
)

// The server never writes the file of its users. So it refuses ACL SETUSER, DELUSER and SAVE.

var aclCommands = []command{
	{
		name: "acl", arity: -2, since: "6.0.0",
		summary: "A container for Access List Control commands",
		subs: []command{
			{
				name: "deluser", arity: -3, flags: adminControl, since: "6.0.0", run: (*client).aclReadOnly,
				summary: "Refused: users are kept in their file",
				args:    "username [username ...]",
			},
			{
				name: "dryrun", arity: -4, flags: adminControl | secret, since: "7.0.0", run: (*client).aclDryRun,
				summary: "Returns whether the user can execute the given command without executing the command.",
				args:    "username command [arg [arg ...]]",
			},
			{
				name: "getuser", arity: 3, flags: adminControl, since: "6.0.0", run: (*client).aclGetUser,
				summary: "Get the rules for a specific ACL user",
				args:    "username",
			},
			{
				name: "list", arity: 2, flags: adminControl, since: "6.0.0", run: (*client).aclList,
				summary: "List the current ACL rules in ACL config file format",
			},
			{
				name: "load", arity: 2, flags: adminControl, since: "6.0.0", run: (*client).aclLoad,
				summary: "Reload the ACLs from the configured ACL file",
			},
			{
				name: "save", arity: 2, flags: adminControl, since: "6.0.0", run: (*client).aclReadOnly,
				summary: "Refused: the server does not write the file of its users",
			},
			{
				name: "setuser", arity: -3, flags: adminControl | secret, since: "6.0.0", run: (*client).aclReadOnly,
				summary: "Refused: users are kept in their file",
				args:    "username [rule [rule ...]]",
			},
			{
				name: "users", arity: 2, flags: adminControl, since: "6.0.0", run: (*client).aclUsers,
				summary: "List the username of all the configured ACL rules",
			},
			{
				name: "whoami", arity: 2, flags: control, since: "6.0.0", run: (*client).aclWhoami,
				summary: "Return the name of the user associated to the current connection",
			},
		},
	},
}

func (c *client) aclWhoami([][]byte) error {
	c.w.BulkString(c.account.Load().Name())
	return nil
}

func (c *client) aclUsers([][]byte) error {
	writeStrings(c.w, c.x.gate.users.Names())
	return nil
}

func (c *client) aclList([][]byte) error {
	var lines []string
	for _, name := range c.x.gate.users.Names() {
		if u := c.x.gate.users.Find(name).User(); u != nil {
			lines = append(lines, u.String())
		}
	}
	writeStrings(c.w, lines)
	return nil
}

func (c *client) aclGetUser(args [][]byte) error {
	u := c.x.gate.users.Find(string(args[2])).User()
	if u == nil {
		c.w.Null()
		return nil
	}
	fields := 6
	if u.NamesContenders() {
		fields++
	}
	w := c.w
	w.Map(fields)
	w.BulkString("flags")
	flags := u.Flags()
	w.Set(len(flags))
	for _, f := range flags {
		w.BulkString(f)
	}
	w.BulkString("passwords")
	writeStrings(w, u.Passwords())
	w.Pairs("commands", u.Commands(), "keys", u.Keys(), "channels", u.Channels())
	w.BulkString("selectors")
	w.Array(0)
	if u.NamesContenders() {
		w.Pairs("contenders", u.Contenders())
	}
	return nil
}

func (c *client) aclLoad([][]byte) error {
	changed, err := c.x.gate.users.Load()
	switch {
	case errors.Is(err, access.ErrNoFile):
		return replyError("ERR This instance is not configured to use an ACL file. Start it with the option aclfile.")
	case err != nil:
		return replyErrorf("ERR %s. ACL errors detected, no change to the previously active ACL rules was performed", strings.NewReplacer("\r", " ", "\n", " ").Replace(err.Error()))
	}
	c.w.Simple("OK")
	c.x.rejudge(c, changed)
	return nil
}

func (c *client) aclReadOnly([][]byte) error {
	return replyErrorf("ERR %s is not served: users are kept in the file of the option aclfile; change this file and send ACL LOAD",
		strings.ToUpper(strings.ReplaceAll(c.call.entry.full, "|", " ")))
}

func (c *client) aclDryRun(args [][]byte) error {
	u := c.x.gate.users.Find(string(args[2])).User()
	if u == nil {
		return replyErrorf("ERR User '%s' not found", shorten(args[2]))
	}
	call := args[3:]
	e, err := c.x.table.find(call)
	switch {
	case e == nil, err != nil && e.bySub != nil && len(call) > 1:
		return replyErrorf("ERR Command '%s' not found", shorten(call[0]))
	case err != nil:
		return err
	}
	if d := e.deny(u, call); d != nil {
		c.w.BulkString(fmt.Sprintf(denialWords[d.reason].dryrun, d.object))
		return nil
	}
	c.w.Simple("OK")
	return nil
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
	if x.beside != nil {
		x.beside.rejudge(caller, changed)
	}
	for _, conn := range x.server.Conns() {
		c, ok := conn.State().(*client)
		if !ok || !affected[c.account.Load()] {
			continue
		}
		if u := c.user(); u == nil || !c.mayGoOnListening(u) {
			if c == caller {
				conn.CloseAfterReply()
			} else {
				conn.Close()
			}
			continue
		}
		if call := c.waiting.Load(); call != nil {
			call.judge(c)
		}
		if w := c.waiter.Load(); w != nil {
			for _, v := range w.all() {
				v.judge()
			}
		}
	}
}
