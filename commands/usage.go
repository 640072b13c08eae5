package commands

import "strings"

// usage returns the syntax of a command in one line, such as "SIMBA.QUEUE mutex [COUNT count]".
func usage(c *command) string {
	words := []string{strings.ToUpper(c.name)}
	for i := range c.args {
		words = append(words, c.args[i].syntax())
	}
	return strings.Join(words, " ")
}

// syntax returns an argument in the notation of Redis' documentation.
func (a *argument) syntax() string {
	s := a.body()
	if a.multiple {
		s += " [" + s + " ...]"
	}
	switch {
	case a.optional:
		return "[" + s + "]"
	case a.kind == oneof:
		return "<" + s + ">"
	}
	return s
}

func (a *argument) body() string {
	var s string
	switch a.kind {
	case pureToken:
		return a.token
	case oneof:
		s = joinSyntax(a.args, " | ")
	case block:
		s = joinSyntax(a.args, " ")
	default:
		s = a.name
	}
	switch {
	case a.token == "":
		return s
	case a.kind == oneof:
		return a.token + " <" + s + ">"
	}
	return a.token + " " + s
}

func joinSyntax(args []argument, separator string) string {
	parts := make([]string, len(args))
	for i := range args {
		parts[i] = args[i].syntax()
	}
	return strings.Join(parts, separator)
}

func (c *client) help([][]byte) error {
	container := c.running.container
	lines := []string{strings.ToUpper(container.name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	for _, s := range container.subs {
		lines = append(lines, usage(s.command), "    "+strings.TrimSuffix(s.summary, ".")+".")
	}
	c.writeLines(lines)
	return nil
}

func (c *client) writeLines(lines []string) {
	c.w.Array(len(lines))
	for _, l := range lines {
		c.w.Simple(l)
	}
}
