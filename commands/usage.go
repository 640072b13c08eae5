package commands

import (
	"fmt"
	"strings"
)

// usage returns the syntax of a command in one line: "SIMBA.QUEUE mutex [COUNT count]".
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

// help replies to HELP of a container, as Redis does.
func (c *client) help([][]byte) {
	container := c.running.container
	lines := []string{strings.ToUpper(container.name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	for _, s := range container.subs {
		lines = append(lines, usage(s.command), "    "+strings.TrimSuffix(s.summary, ".")+".")
	}
	c.writeLines(lines)
}

// Markdown returns the tables of all commands for a document, one for each group. "Since" is
// the version of this server for SIMBA.*, and for the others the version of Redis that first
// had them.
func Markdown() string {
	var b strings.Builder
	var groups []string
	rows := make(map[string]string)
	for _, e := range newTable().entries {
		if rows[e.group] == "" {
			groups = append(groups, e.group)
		}
		rows[e.group] += row(e)
	}
	for _, group := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n| command | what it does | ACL categories | since |\n| --- | --- | --- | --- |\n%s", group, rows[group])
	}
	return b.String()
}

// row is a command's row in a table of Markdown.
func row(e *entry) string {
	shown := "`" + usage(e.command) + "`"
	if e.subs != nil {
		shown = "`" + strings.ToUpper(e.name) + "` " + subcommandNames(e)
	}
	since := e.since
	if e.group != simbaGroup {
		since = "Redis " + since
	}
	categories := ""
	for name := range members(e.acl(), categoryNames[:]) {
		categories += " @" + name
	}
	return fmt.Sprintf("| %s | %s |%s | %s |\n", strings.ReplaceAll(shown, "|", `\|`), e.summary, categories, since)
}

func subcommandNames(e *entry) string {
	var names []string
	for _, s := range e.subs {
		names = append(names, "`"+strings.ToUpper(s.name)+"`")
	}
	return strings.Join(names, " ")
}

func (c *client) writeLines(lines []string) {
	c.w.Array(len(lines))
	for _, l := range lines {
		c.w.Simple(l)
	}
}
