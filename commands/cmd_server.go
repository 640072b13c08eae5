package commands

import "time"

var serverCommands = []command{
	{
		name: "cluster", arity: -2, group: "cluster", since: "3.0.0", run: (*client).cluster,
		summary: "Refused: cluster support is disabled",
	},
	{
		name: "module", arity: -2, since: "4.0.0",
		summary: "A container for module commands",
		subs: []command{{
			name: "list", arity: 2, flags: adminHidden | noscript, since: "4.0.0", run: (*client).moduleList,
			summary: "List all modules loaded by the server: there are none",
		}},
	},
	{
		name: "role", arity: 1, flags: control | fast, categories: catAdmin | catDangerous, since: "2.8.12", run: (*client).role,
		summary: "Return the role of the instance in the context of replication",
	},
	{
		name: "shutdown", arity: -1, flags: adminControl | noMulti | allowBusy, since: "1.0.0", run: (*client).shutdown,
		summary: "Stop the server; leases stay, on disk",
		args:    "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
	},
	{
		name: "time", arity: 1, flags: loading | stale | fast, since: "2.6.0", run: withoutTx(timeNow), keyed: timeNow,
		summary: "Return the current server time",
	},
}

// timeNow is TIME. In a transaction the time is constant.
func timeNow(t *keyTx, _ [][]byte) error {
	now := time.Now()
	if t.Tx != nil {
		now = t.Now()
	}
	writeStrings(t.w, []string{decimal(now.Unix()), decimal(int64(now.Nanosecond() / 1000))})
	return nil
}

func (c *client) role([][]byte) error {
	if c.x.cfg.Sentinel != nil {
		c.w.Array(2)
		c.w.BulkString("sentinel")
		writeStrings(c.w, []string{MasterName})
		return nil
	}
	c.w.Array(3)
	c.w.BulkString("master")
	c.w.Int(0)
	c.w.Array(0)
	return nil
}

func (c *client) moduleList([][]byte) error {
	c.w.Array(0)
	return nil
}

func (c *client) cluster([][]byte) error {
	return replyError("ERR This instance has cluster support disabled")
}

// shutdown makes the server stop. As in Redis, a successful SHUTDOWN has no reply: the connection
// closes. SAVE, NOSAVE, NOW and FORCE have no effect.
func (c *client) shutdown(args [][]byte) error {
	abort := false
	for _, arg := range args[1:] {
		switch {
		case equalFold(arg, "ABORT"):
			abort = true
		case equalFold(arg, "NOSAVE"), equalFold(arg, "SAVE"), equalFold(arg, "NOW"), equalFold(arg, "FORCE"):
		default:
			return errSyntax
		}
	}
	switch {
	case abort && len(args) > 2:
		return errSyntax
	case abort:
		return replyError("ERR No shutdown in progress.")
	case c.x.cfg.Shutdown == nil:
		return replyError("ERR SHUTDOWN is not served here")
	default:
		c.conn.CloseAfterReply()
		c.x.cfg.Shutdown()
	}
	return nil
}
