package commands

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp/resp"
)

var configCommands = []command{
	{
		name: "config", arity: -2, since: "2.0.0",
		summary: "A container for server configuration commands",
		subs: []command{
			{
				name: "get", arity: -3, flags: adminControl, since: "2.0.0", run: (*client).configGet,
				summary: "Get the values of configuration parameters",
				args:    "parameter [parameter ...]",
			},
			{
				name: "rewrite", arity: 2, flags: adminControl, since: "2.8.0", run: (*client).configRewrite,
				summary: "Refused: the server does not write its configuration file",
			},
			{
				name: "set", arity: -4, flags: adminControl | secret, since: "2.0.0", run: (*client).configSet,
				summary: "Set configuration parameters to the given values, all or none",
				args:    "parameter value [parameter value ...]",
			},
		},
	},
}

// ownSettings returns the settings of this package, and constants that Redis tools expect.
func (x *Commands) ownSettings() []Setting {
	return []Setting{
		integerSetting("slowlog-log-slower-than", &x.observers.slowlog.threshold, -1, math.MaxInt64),
		integerSetting("slowlog-max-len", &x.observers.slowlog.limit, 0, maxSlowlogLimit),
		integerSetting("busy-reply-threshold", &x.scripting.busyAfter, 0, math.MaxInt64),
		integerSetting("lua-time-limit", &x.scripting.busyAfter, 0, math.MaxInt64), // the old name
		constantSetting("notify-keyspace-events", ""),
		flushSetting(),
		constantSetting("databases", "1"),
		constantSetting("save", ""),
		constantSetting("appendonly", yesNo(x.cfg.Info.Durability != "memory")),
		{Name: "maxmemory", Get: func() string { return strconv.FormatUint(x.gate.memory.bytes.Load(), 10) }},
		constantSetting("maxmemory-policy", "noeviction"),
	}
}

func (c *client) configGet(args [][]byte) error {
	var globs []string
	for _, a := range args[2:] {
		glob, err := parseGlob("parameter", a)
		if err != nil {
			return err
		}
		globs = append(globs, strings.ToLower(glob))
	}
	var found []any
	for _, s := range c.x.settings.list {
		if slices.ContainsFunc(globs, func(glob string) bool { return resp.Match(glob, s.Name) }) {
			found = append(found, s.Name, s.Get())
		}
	}
	c.w.MapOf(found...)
	return nil
}

func (c *client) configSet(args [][]byte) error {
	assignments, err := c.x.settings.parse(args)
	if err == nil {
		err = c.x.settings.assign(assignments)
	}
	if err != nil {
		return err
	}
	c.w.Simple("OK")
	return nil
}

func (c *client) configRewrite([][]byte) error {
	return replyError("ERR CONFIG REWRITE is not supported: the server does not write its configuration file")
}
