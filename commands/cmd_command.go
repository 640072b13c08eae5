package commands

import (
	"slices"
)

var commandCommands = []command{
	{
		name: "command", arity: -1, flags: loading | stale, categories: catConnection,
		group: "server", since: "2.8.13", run: (*client).commandAll,
		summary: "Get array of command details",
		tips:    []string{"nondeterministic_output_order"},
		subs:    commandSubcommands,
	},
}

var commandSubcommands = []command{
	{
		name: "docs", arity: -2, flags: loading | stale, categories: catConnection, since: "7.0.0", run: (*client).commandDocs,
		summary: "Get array of specific command documentation",
		tips:    []string{"nondeterministic_output_order"},
		args:    "[command-name [command-name ...]]",
	},
	{
		name: "info", arity: -2, flags: loading | stale, categories: catConnection, since: "2.8.13", run: (*client).commandInfo,
		summary: "Get array of specific command details, or all when no argument is given.",
		tips:    []string{"nondeterministic_output_order"},
		args:    "[command-name [command-name ...]]",
	},
}

func (c *client) commandAll([][]byte) error {
	c.writeInfos(c.x.table.entries)
	return nil
}

func (c *client) commandInfo(args [][]byte) error {
	if len(args) == 2 {
		c.writeInfos(c.x.table.entries)
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

func (c *client) writeInfos(entries []*entry) {
	c.w.Array(len(entries))
	for _, e := range entries {
		c.writeInfo(e)
	}
}

func (c *client) writeInfo(e *entry) {
	w := c.w
	w.Array(10)
	w.BulkString(e.full)
	w.Int(int64(e.arity))
	c.writeStatusSet(slices.Collect(members(e.flags, flagNames[:])))
	w.Int(int64(e.keys.first))
	w.Int(int64(e.keys.last))
	w.Int(int64(e.keys.step))
	categories := slices.Collect(members(e.acl(), categoryNames[:]))
	for i, name := range categories {
		categories[i] = "@" + name
	}
	c.writeStatusSet(categories)
	w.Set(len(e.tips))
	for _, tip := range e.tips {
		w.BulkString(tip)
	}
	c.writeKeySpec(e)
	w.Set(len(e.subs))
	for _, s := range e.subs {
		c.writeInfo(s)
	}
}

// writeStatusSet writes a set of simple strings. redis-cli 7 aborts if the flags are bulk strings.
func (c *client) writeStatusSet(names []string) {
	c.w.Set(len(names))
	for _, n := range names {
		c.w.Simple(n)
	}
}

func (c *client) writeKeySpec(e *entry) {
	w, k := c.w, e.keys
	index := max(k.first, e.keyCount)
	if index == 0 {
		w.Set(0)
		return
	}
	w.Set(1)
	if e.keyNotes != "" {
		w.Map(4)
		c.writeField("notes", e.keyNotes)
	} else {
		w.Map(3)
	}
	w.BulkString("flags")
	c.writeStatusSet(k.flags)
	w.BulkString("begin_search")
	w.Map(2)
	c.writeField("type", "index")
	w.BulkString("spec")
	w.Map(1)
	c.writeNumber("index", int64(index))
	w.BulkString("find_keys")
	w.Map(2)
	if e.keyCount > 0 {
		c.writeField("type", "keynum")
		w.BulkString("spec")
		w.Map(3)
		c.writeNumber("keynumidx", 0)
		c.writeNumber("firstkey", 1)
		c.writeNumber("keystep", 1)
		return
	}
	last := k.last
	if last > 0 {
		last -= k.first // relative to the first key; a negative last counts from the end
	}
	c.writeField("type", "range")
	w.BulkString("spec")
	w.Map(3)
	c.writeNumber("lastkey", int64(last))
	c.writeNumber("keystep", int64(k.step))
	c.writeNumber("limit", 0)
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
	c.w.Map(len(entries))
	for _, e := range entries {
		c.w.BulkString(e.full)
		c.writeDoc(e)
	}
}

func (c *client) writeDoc(e *entry) {
	w := c.w
	args := parseUsage(e.args)
	fields := 3
	for _, present := range [...]bool{len(args) > 0, len(e.subs) > 0} {
		if present {
			fields++
		}
	}
	w.Map(fields)
	c.writeField("summary", e.summary)
	c.writeField("since", e.since)
	c.writeField("group", e.group)
	if len(args) > 0 {
		w.BulkString("arguments")
		c.writeArguments(args)
	}
	if len(e.subs) > 0 {
		w.BulkString("subcommands")
		c.writeDocs(e.subs)
	}
}

func (c *client) writeArguments(args []argument) {
	c.w.Array(len(args))
	for i := range args {
		c.writeArgument(&args[i])
	}
}

func (c *client) writeArgument(a *argument) {
	w := c.w
	var flags []string
	if a.optional {
		flags = append(flags, "optional")
	}
	if a.multiple {
		flags = append(flags, "multiple")
	}
	fields := 2
	for _, present := range [...]bool{a.kind == key, a.token != "", len(flags) > 0, len(a.args) > 0} {
		if present {
			fields++
		}
	}
	w.Map(fields)
	c.writeField("name", a.name)
	c.writeField("type", string(a.kind))
	if a.kind == key {
		c.writeNumber("key_spec_index", 0)
	}
	if a.token != "" {
		c.writeField("token", a.token)
	}
	if len(flags) > 0 {
		w.BulkString("flags")
		c.writeStatusSet(flags)
	}
	if len(a.args) > 0 {
		w.BulkString("arguments")
		c.writeArguments(a.args)
	}
}
