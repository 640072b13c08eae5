package commands

import "github.com/simba-resp/simba-resp/resp"

// maxClientName bounds, in bytes, what a client tells of itself: CLIENT LIST shows
// it for each connection, and the slow log keeps the name for each entry.
const maxClientName = 128

// The subcommands of CLIENT that concern the connection itself.

func (c *client) clientID([][]byte) { c.w.Uint(c.conn.ID()) }

func (c *client) clientGetName([][]byte) {
	if name := c.conn.Name(); name != "" {
		c.w.BulkString(name)
	} else {
		c.w.Null()
	}
}

func checkClientName(name []byte) error {
	if !printable(name) {
		return errClientName
	}
	return checkLength("client name", name, maxClientName)
}

func (c *client) clientSetName(args [][]byte) {
	if err := checkClientName(args[2]); err != nil {
		c.fail(err)
		return
	}
	c.conn.SetName(string(args[2]))
	c.w.Simple("OK")
}

func (c *client) clientSetInfo(args [][]byte) {
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
		c.fail(replyErrorf("ERR Unrecognized option '%s'", shorten(args[2])))
		return
	}
	if !printable(args[3]) {
		c.fail(replyErrorf("ERR %s cannot contain spaces, newlines or special characters.", args[2]))
		return
	}
	if err := checkLength(option, args[3], maxClientName); err != nil {
		c.fail(err)
		return
	}
	*field = string(args[3])
	c.library.Store(&lib)
	c.w.Simple("OK")
}

// clientToggle serves NO-EVICT and NO-TOUCH, which a client may set and see in
// CLIENT LIST, but which change nothing here: nothing is evicted.
func (c *client) clientToggle(args [][]byte) {
	var on bool
	switch {
	case equalFold(args[2], "ON"):
		on = true
	case !equalFold(args[2], "OFF"):
		c.fail(errSyntax)
		return
	}
	if equalFold(args[1], "NO-EVICT") {
		c.noEvict.Store(on)
	} else {
		c.noTouch.Store(on)
	}
	c.w.Simple("OK")
}

func (c *client) clientReply(args [][]byte) {
	switch {
	case equalFold(args[2], "ON"):
		c.conn.SetReplyMode(resp.ReplyOn)
		c.w.Simple("OK")
	case equalFold(args[2], "OFF"):
		c.conn.SetReplyMode(resp.ReplyOff)
	case equalFold(args[2], "SKIP"):
		c.conn.SetReplyMode(resp.ReplySkipNext)
	default:
		c.fail(errSyntax)
	}
}

func (c *client) clientTracking(args [][]byte) {
	switch {
	case equalFold(args[2], "OFF"):
		c.w.Simple("OK")
	case equalFold(args[2], "ON"):
		c.fail(replyError("ERR client side caching is not supported: this server keeps locks, not values"))
	default:
		c.fail(errSyntax)
	}
}

func (c *client) clientTrackingInfo([][]byte) {
	w := c.w
	w.Map(3)
	w.BulkString("flags")
	w.Set(1)
	w.BulkString("off")
	w.BulkString("redirect")
	w.Int(-1)
	w.BulkString("prefixes")
	w.Array(0)
}
