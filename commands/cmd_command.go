package commands

var commandCommands = []command{
	{
		name: "command", arity: -1, flags: loading | stale, since: "2.8.13", run: (*client).commandInfo,
		summary: "Get array of command details",
		subs: []command{
			{
				name: "docs", arity: -2, flags: loading | stale, since: "7.0.0", run: (*client).commandDocs,
				summary: "Get array of specific command documentation",
				args:    "[command-name [command-name ...]]",
			},
			{
				name: "info", arity: -2, flags: loading | stale, since: "2.8.13", run: (*client).commandInfo,
				summary: "Get array of specific command details, or all when no argument is given.",
				args:    "[command-name [command-name ...]]",
			},
		},
	},
}

// commandInfo serves COMMAND and COMMAND INFO. Without names it returns all commands.
func (c *client) commandInfo(args [][]byte) error {
	if len(args) <= 2 {
		c.w.Array(len(c.x.table.entries))
		for _, e := range c.x.table.entries {
			c.writeInfo(e)
		}
		return nil
	}
	c.w.Array(len(args) - 2)
	for _, name := range args[2:] {
		if e := c.x.table.named(name); e != nil {
			c.writeInfo(e)
		} else {
			c.w.Null()
		}
	}
	return nil
}

func (c *client) writeInfo(e *entry) {
	w := c.w
	w.Array(10)
	w.BulkString(e.full)
	w.Int(int64(e.arity))
	c.writeStatusSet(members(e.flags, flagNames[:]))
	w.Int(int64(e.keys.first))
	w.Int(int64(e.keys.last))
	w.Int(int64(e.keys.step))
	categories := members(e.acl(), categoryNames[:])
	for i, name := range categories {
		categories[i] = "@" + name
	}
	c.writeStatusSet(categories)
	for range 3 { // the tips, key specifications and subcommands of Redis 7
		w.Set(0)
	}
}

// writeStatusSet writes a set of simple strings. redis-cli 7 aborts if the flags are bulk strings.
func (c *client) writeStatusSet(names []string) {
	c.w.Set(len(names))
	for _, n := range names {
		c.w.Simple(n)
	}
}

func (c *client) commandDocs(args [][]byte) error {
	entries := c.x.table.entries
	if len(args) > 2 {
		entries = nil
		for _, name := range args[2:] {
			if e := c.x.table.named(name); e != nil {
				entries = append(entries, e)
			}
		}
	}
	c.writeDocs(entries)
	return nil
}

func (c *client) writeDocs(entries []*entry) {
	w := c.w
	w.Map(len(entries))
	for _, e := range entries {
		w.BulkString(e.full)
		w.Map(5)
		w.Pairs("summary", e.summary, "since", e.since, "group", e.group)
		w.BulkString("arguments")
		args := splitUsage(e.args)
		w.Array(len(args))
		for _, a := range args {
			w.MapOf("name", a, "type", "string")
		}
		w.BulkString("subcommands")
		c.writeDocs(e.subs)
	}
}

// splitUsage splits the arguments of a command at the blanks outside brackets. redis-cli shows the
// parts as they are.
func splitUsage(s string) (parts []string) {
	depth, from := 0, 0
	for i, c := range s {
		switch {
		case c == '[', c == '<':
			depth++
		case c == ']', c == '>':
			depth--
		case c == ' ' && depth == 0:
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	if s == "" {
		return nil
	}
	return append(parts, s[from:])
}
