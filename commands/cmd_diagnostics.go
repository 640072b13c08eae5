package commands

import "math"

var monitorCommands = []command{
	{
		name: "monitor", arity: 1, flags: adminControl | unqueued, since: "1.0.0", run: (*client).startMonitor,
		summary: "Listen for all requests received by the server in real time",
	},
}

// startMonitor makes the connection a monitor. HoldPushes makes the server send OK before the first
// line of the monitor.
func (c *client) startMonitor([][]byte) error {
	c.w.Simple("OK")
	c.conn.HoldPushes()
	c.conn.SetAwaitsPushes(true)
	c.x.observers.monitors.add(&c.monitor)
	c.endIfRevoked()
	return nil
}

var slowlogCommands = []command{
	{
		name: "slowlog", arity: -2, since: "2.2.12",
		summary: "A container for slow log commands",
		subs: []command{
			{
				name: "get", arity: -2, flags: adminHidden | loading | stale, since: "2.2.12", run: (*client).slowlogGet,
				summary: "Get the slow log's entries",
				args:    "[count]",
			},
			{
				name: "len", arity: 2, flags: adminHidden | loading | stale, since: "2.2.12", run: (*client).slowlogLen,
				summary: "Get the slow log's length",
			},
			{
				name: "reset", arity: 2, flags: adminHidden | loading | stale, since: "2.2.12", run: (*client).slowlogReset,
				summary: "Clear all entries from the slow log",
			},
		},
	},
}

func (c *client) slowlogGet(args [][]byte) error {
	count := int64(10)
	switch len(args) {
	case 2:
	case 3:
		n, ok := parseInt(args[2])
		if !ok || n < -1 || n > math.MaxInt32 {
			return replyError("ERR count should be greater than or equal to -1")
		}
		count = n
	default:
		return tryHelp(c.call.entry, args)
	}
	calls := c.x.observers.slowlog.newest(count)
	w := c.w
	w.Array(len(calls))
	for _, call := range calls {
		w.Array(6)
		w.Int(call.id)
		w.Int(call.at.Unix())
		w.Int(call.took.Microseconds())
		writeStrings(w, call.args)
		w.BulkString(call.client)
		w.BulkString(call.name)
	}
	return nil
}

func (c *client) slowlogLen([][]byte) error {
	c.w.Int(int64(c.x.observers.slowlog.size()))
	return nil
}

func (c *client) slowlogReset([][]byte) error {
	c.x.observers.slowlog.reset()
	c.w.Simple("OK")
	return nil
}
