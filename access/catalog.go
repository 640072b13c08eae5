package access

import (
	"slices"
	"strings"
)

// Command is a command of the server.
type Command struct {
	Name       string   // as in rules: in lower case, "config|get" for a subcommand
	Categories []string // without the @
}

// Catalog holds all commands of a server. The number of a command is its index in the argument of
// NewCatalog. A Catalog is immutable.
type Catalog struct {
	match      func(pattern, s string) bool
	commands   []Command
	byName     map[string]int
	subs       map[int][]int // subcommands by container
	byCategory map[string][]int
}

// NewCatalog returns the catalog of these commands and categories. A category may have no commands.
// match reports whether a string matches a glob, in bounded time.
func NewCatalog(commands []Command, categories []string, match func(pattern, s string) bool) *Catalog {
	c := &Catalog{
		match:      match,
		commands:   commands,
		byName:     make(map[string]int, len(commands)),
		subs:       make(map[int][]int),
		byCategory: make(map[string][]int, len(categories)),
	}
	for _, name := range categories {
		c.byCategory[name] = nil
	}
	for id, cmd := range commands {
		c.byName[cmd.Name] = id
		for _, category := range cmd.Categories {
			c.byCategory[category] = append(c.byCategory[category], id)
		}
	}
	for id, cmd := range commands {
		if container, _, nested := strings.Cut(cmd.Name, "|"); nested {
			if parent, ok := c.byName[container]; ok {
				c.subs[parent] = append(c.subs[parent], id)
			}
		}
	}
	return c
}

// named returns the commands of a rule, given without its sign: "get", "config|set" or "@read". A
// container command includes its subcommands.
func (c *Catalog) named(what string) ([]int, bool) {
	var ids []int
	if category, ok := strings.CutPrefix(what, "@"); ok {
		members, known := c.byCategory[category]
		if !known {
			return nil, false
		}
		ids = members
	} else {
		id, known := c.byName[what]
		if !known {
			return nil, false
		}
		ids = []int{id}
	}
	all := slices.Clone(ids)
	for _, id := range ids {
		all = append(all, c.subs[id]...)
	}
	return all, true
}
