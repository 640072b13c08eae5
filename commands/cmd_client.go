package commands

// This file has CLIENT and its subcommands that concern only the calling connection.

var clientCommands = []command{
	{
		name: "client", arity: -2, group: "connection", since: "2.4.0",
		summary: "A container for client connection commands",
		subs:    clientSubcommands,
	},
}

var clientSubcommands = []command{
	{
		name: "getname", arity: 2, flags: control, categories: catConnection, since: "2.6.9", run: (*client).clientGetName,
		summary: "Get the current connection name",
	},
	{
		name: "id", arity: 2, flags: control, categories: catConnection, since: "5.0.0", run: (*client).clientID,
		summary: "Returns the client ID for the current connection",
	},
	clientInfoRow,
	clientKillRow,
	clientListRow,
	{
		name: "setinfo", arity: 4, flags: control, categories: catConnection, since: "7.2.0", run: (*client).clientSetInfo,
		summary: "Set client or connection specific info",
		args:    "<LIB-NAME libname | LIB-VER libver>",
	},
	{
		name: "setname", arity: 3, flags: control, categories: catConnection, since: "2.6.9", run: (*client).clientSetName,
		summary: "Set the current connection name",
		args:    "connection-name",
	},
	{
		name: "tracking", arity: -3, flags: control, categories: catConnection, since: "6.0.0", run: (*client).clientTracking,
		summary: "Enable or disable server assisted client side caching, which is not supported",
		args:    "<ON | OFF>",
	},
	clientUnblockRow,
}

// maxClientName is the longest name of a client or a library, in bytes. It bounds the memory of
// CLIENT LIST and of the slow log.
const maxClientName = 128

func (c *client) clientID([][]byte) error {
	c.w.Uint(c.conn.ID())
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

func checkClientName(name []byte) error {
	if !printable(name) {
		return errClientName
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
	var field *string
	var option string
	switch {
	case equalFold(args[2], "LIB-NAME"):
		field, option = &lib.name, "LIB-NAME"
	case equalFold(args[2], "LIB-VER"):
		field, option = &lib.version, "LIB-VER"
	default:
		return replyErrorf("ERR Unrecognized option '%s'", shorten(args[2]))
	}
	if !printable(args[3]) {
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
