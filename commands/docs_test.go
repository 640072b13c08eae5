package commands

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/pages"
)

// commandsHead is the text above the tables of the page.
const commandsHead = `# Commands

<!-- make docs writes this page from the command table. Do not edit it. -->

Every command that the server serves, by group. [Protocol](protocol.md) describes the commands of
group ` + "`simba`" + `, and [Redis keys](redis-keys.md) those that work on keys. redis-cli shows the same
texts: ` + "`help @simba`, `help SIMBA.ACQUIRE`" + `. The ACL categories are for
[rules of users](users.md).

The groups ` + "`generic`, `string`, `hash`, `sorted-set` and `scripting`, and `WATCH`" + `, need the engine
` + "`embedded`" + `. Other engines serve only ` + "`DBSIZE`, `SCAN`, `STRLEN` and `TYPE`" + ` of them.

Every command with subcommands also has the subcommand ` + "`HELP`" + `.
`

// commandTables returns the tables of all commands, one for each group. "Since" is the version of
// this server for SIMBA.*, and the version of Redis or Valkey for other commands.
func commandTables() string {
	var b strings.Builder
	var groups []string
	rows := make(map[string]string)
	for e := range newTable(families()).all() {
		if e.run == nil || e.container != nil && e.name == "help" {
			continue
		}
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

func row(e *entry) string {
	shown := usage(e.command)
	if e.container != nil {
		shown = strings.ToUpper(e.container.name) + " " + shown
	}
	since := e.since
	switch {
	case e.name == "delifeq":
		since = "Valkey " + since
	case e.group != simbaGroup:
		since = "Redis " + since
	}
	categories := ""
	for _, name := range members(e.acl(), categoryNames[:]) {
		categories += " @" + name
	}
	return fmt.Sprintf("| `%s` | %s |%s | %s |\n", strings.ReplaceAll(shown, "|", `\|`), strings.TrimSuffix(e.summary, "."), categories, since)
}

func TestPageOfCommandsIsCurrent(t *testing.T) {
	pages.Current(t, "../docs/reference/commands.md", "", "", commandsHead+commandTables())
}

func TestEveryCommandIsDocumented(t *testing.T) {
	for e := range newTable(families()).all() {
		if e.summary == "" || e.since == "" || e.group == "" || e.arity == 0 {
			t.Errorf("%s lacks one of these: summary %q, since %q, group %q, arity %d", e.full, e.summary, e.since, e.group, e.arity)
		}
		if e.run == nil && e.subs == nil {
			t.Errorf("%s has neither a run function nor subcommands", e.full)
		}
		if len(e.name) > maxName {
			t.Errorf("the name %s is too long for lookup", e.name)
		}
		if e.full != strings.ToLower(e.full) {
			t.Errorf("%s is not in lower case", e.full)
		}
		args := parseUsage(e.args)
		checkArguments(t, e.full, args)
		if n := fewest(args); e.args != "" && n != max(e.arity, -e.arity)-1-strings.Count(e.full, "|") {
			t.Errorf("%s needs %d arguments by its usage, and has the arity %d", e.full, n, e.arity)
		}
	}
}

// fewest returns how many words the arguments need at least.
func fewest(args []argument) (n int) {
	for _, a := range args {
		switch {
		case a.optional:
		case a.kind == oneof:
			least := fewest(a.args[:1])
			for i := range a.args {
				least = min(least, fewest(a.args[i:i+1]))
			}
			n += least
		case a.kind == block:
			n += fewest(a.args)
		default:
			n++
		}
		if !a.optional && a.token != "" && a.kind != pureToken {
			n++
		}
	}
	return n
}

func checkArguments(t *testing.T, command string, args []argument) {
	for _, a := range args {
		if a.name == "" || a.kind == "" {
			t.Errorf("%s: argument %+v has no name or type", command, a)
		}
		if nested := a.kind == oneof || a.kind == block; nested != (len(a.args) > 0) {
			t.Errorf("%s: argument %s of type %s has %d nested arguments; only oneof and block may have some", command, a.name, a.kind, len(a.args))
		}
		if a.kind == pureToken && a.token == "" {
			t.Errorf("%s: argument %s has no token", command, a.name)
		}
		checkArguments(t, command, a.args)
	}
}

// TestRedisCliHelps runs the real redis-cli, which makes its help and hints from COMMAND DOCS.
func TestRedisCliHelps(t *testing.T) {
	need.Program(t, "redis-cli", "redis-tools")
	addr := newSite(t, Config{}).listen()
	_, port, _ := strings.Cut(addr, ":")
	for _, options := range [][]string{{}, {"-3"}} {
		cmd := exec.Command("redis-cli", append(options, "-p", port)...)
		cmd.Stdin = strings.NewReader("help @simba\nhelp SIMBA.ACQUIRE\nhelp client kill\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli failed: %v: %s", err, out)
		}
		for _, want := range []string{
			"SIMBA.GUARD\x1b[0m \x1b[90mmutex contender ttl [TRANSITION ms] [TOKEN token]",
			"SIMBA.ACQUIRE\x1b[0m \x1b[90mmutex contender ttl [TRANSITION ms] [WAIT ms [VIA waiter REQUEST n] | NOQUEUE] [SESSION]",
			"group:\x1b[0m simba",
			"CLIENT KILL\x1b[0m",
		} {
			if !bytes.Contains(out, []byte(want)) {
				t.Errorf("redis-cli %v does not show %q:\n%s", options, want, out)
			}
		}
	}
}
