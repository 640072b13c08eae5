package commands

import (
	"slices"
	"strings"
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

// argument is an argument in the terms of COMMAND DOCS.
type argument struct {
	name     string
	kind     kind
	token    string // the word before the argument; a pureToken is only this word
	optional bool
	multiple bool
	args     []argument // the alternatives of a oneof, or the parts of a block
}

type kind string

const (
	str       kind = "string"
	key       kind = "key"
	pattern   kind = "pattern"
	pureToken kind = "pure-token"
	oneof     kind = "oneof"
	block     kind = "block"
)

// parseUsage reads the arguments of a command in the notation of Redis' documentation: [optional],
// <one | of | several>, name [name ...] for a repetition, and tokens in upper case.
func parseUsage(s string) []argument {
	for _, sign := range []string{"[", "]", "<", ">", "|"} {
		s = strings.ReplaceAll(s, sign, " "+sign+" ")
	}
	p := usageParser{words: strings.Fields(s)}
	args, _ := p.sequence()
	return args
}

type usageParser struct{ words []string } // what is left to read

func (p *usageParser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *usageParser) next() string {
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// sequence reads arguments up to the end of the brackets or of the alternative. repeats reports that
// they end with "...", so they repeat the arguments before the brackets.
func (p *usageParser) sequence() (list []argument, repeats bool) {
	for {
		switch w := p.peek(); w {
		case "", "]", ">", "|":
			return list, false
		case "...":
			p.next()
			return list, true
		case "[", "<":
			p.next()
			in, repeats := p.alternatives()
			p.next() // the closing bracket
			if !repeats {
				in.optional = w == "["
				list = append(list, in)
				continue
			}
			n := max(1, len(in.args))
			repeated := join(list[len(list)-n:])
			repeated.multiple = true
			list = append(list[:len(list)-n:len(list)-n], repeated)
		default:
			p.next()
			if w != strings.ToUpper(w) {
				list = append(list, argument{name: w, kind: kindOf(w)})
				continue
			}
			rest, _ := p.sequence()
			a := argument{name: strings.ToLower(w), kind: pureToken}
			if len(rest) > 0 {
				a = join(rest)
			}
			a.token = w
			list = append(list, a)
		}
	}
}

func (p *usageParser) alternatives() (a argument, repeats bool) {
	list, repeats := p.sequence()
	a = join(list)
	if p.peek() != "|" {
		return a, repeats
	}
	a = argument{name: "option", kind: oneof, args: []argument{a}}
	for p.peek() == "|" {
		p.next()
		list, _ := p.sequence()
		a.args = append(a.args, join(list))
	}
	return a, false
}

// join makes one argument of several.
func join(list []argument) argument {
	if len(list) == 1 {
		return list[0]
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].name
	}
	return argument{name: strings.Join(names, "_"), kind: block, args: list}
}

func kindOf(name string) kind {
	switch name {
	case "key", "mutex":
		return key
	case "pattern":
		return pattern
	}
	return str
}
