package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/cli"
	"github.com/simba-resp/simba-resp/tests/pages"
)

const configurationPage = "../../docs/reference/configuration.md"

// configurationHead is the text above the settings of the page.
const configurationHead = `# Configuration

<!-- make docs writes this page from the table of settings. Do not edit it. -->

A flag overrides its environment variable. The variable overrides the key of the same name in the
TOML file of ` + "`--config`" + `, and the key overrides the default. In the file, a key has the name of
the flag: ` + "`handoff-window = \"1s\"`" + `. A duration is written as ` + "`1s`, `500ms` or `1h30m`" + `.

- ` + "`simba-resp serve --help`" + ` prints the same list.
- ` + "`simba-resp check`" + ` reports every error of the settings at once and does not serve.
- ` + "`CONFIG GET *`" + ` shows the current values, except secret ones.
- ` + "`CONFIG SET`" + ` changes the settings marked "at run time", until the next start.
- A ` + "`SIMBA_*`" + ` variable that is no setting is ignored.
- A byte order mark before a value, and line ends after it, are not part of the value.

## Settings

`

// configurationTail is the text below the settings.
const configurationTail = `
## Parameters of CONFIG only

` + "`CONFIG SET`" + ` changes these until the next start. They have no flag.

| parameter | default | meaning |
| --- | --- | --- |
| ` + "`slowlog-log-slower-than`" + ` | 10000 | µs from which a command is in ` + "`SLOWLOG`" + `; -1 = none |
| ` + "`slowlog-max-len`" + ` | 128 | entries of ` + "`SLOWLOG`" + ` |
| ` + "`busy-reply-threshold`" + ` | 5000 | ms after which ` + "`SCRIPT KILL`" + ` can end a script |
| ` + "`flush-held-locks`" + ` | no | whether ` + "`FLUSHALL`" + ` may break tenures |
`

// configurationMarkdown is the page, made from the table of settings.
func configurationMarkdown() string {
	live := newSettings(&app{cfg: new(config)}).live
	var b strings.Builder
	b.WriteString(configurationHead)
	b.WriteString("| setting | value | default | engine | changes |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range new(config).fields() {
		initial := "none"
		if f.initial != "" {
			initial = "`" + f.initial + "`"
		}
		engine := "all"
		if f.engine != "" {
			engine = "`" + f.engine + "`"
		}
		changes := "at start"
		if _, ok := live[f.name]; ok || slices.Contains(tlsLive, f.name) {
			changes = "at run time"
		}
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s | %s | %s |\n", f.name, f.name, strings.ReplaceAll(f.kind, "|", `\|`), initial, engine, changes)
	}
	for _, f := range new(config).fields() {
		fmt.Fprintf(&b, "\n### %s\n\n`--%s`, `%s`", f.name, f.name, cli.Variable(f.name))
		if name, ok := redisNames[f.name]; ok {
			fmt.Fprintf(&b, "; in `CONFIG` `%s`", name)
		}
		if f.secret {
			b.WriteString("; secret: `CONFIG GET` does not show it")
		}
		fmt.Fprintf(&b, "\n\n%s", pages.Fold(strings.ToUpper(f.help[:1])+f.help[1:], ""))
	}
	b.WriteString(configurationTail)
	return b.String()
}

func TestPageOfSettingsIsCurrent(t *testing.T) {
	pages.Current(t, configurationPage, "", "", configurationMarkdown())
}

func TestPageOfSettingsHasTheDefaultsOfConfig(t *testing.T) {
	a := startTestApp(t)
	c := dial(t, a)
	rows := 0
	for _, match := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (\\S+) \\|").FindAllStringSubmatch(configurationTail, -1) {
		name, want := match[1], match[2]
		if got, err := redis.StringMap(c.Do("CONFIG", "GET", name)); err != nil || got[name] != want || len(got) != 1 {
			t.Errorf("CONFIG GET %s: %v, %v, want %q", name, got, err, want)
		}
		rows++
	}
	if rows < 4 {
		t.Errorf("the table of parameters on the page has %d rows, want at least 4", rows)
	}
}

const infoPage = "../../docs/reference/info.md"

func TestPageOfInfoListsTheFieldsThatTheServerSends(t *testing.T) {
	page, err := os.ReadFile(infoPage)
	must(t, err)
	var listed []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `") {
			for _, match := range regexp.MustCompile("`([a-z0-9_]+(?:…)?)`").FindAllStringSubmatch(line, -1) {
				listed = append(listed, match[1])
			}
		}
	}
	a := startTestApp(t)
	c := dial(t, a)
	if _, err := c.Do("SIMBA.ACQUIRE", "job", "a", 600_000); err != nil {
		t.Fatal(err)
	}
	info, err := redis.String(c.Do("INFO", "everything"))
	must(t, err)
	var sent []string
	for line := range strings.Lines(info) {
		name, _, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		sent = append(sent, name)
		if !slices.ContainsFunc(listed, func(l string) bool {
			prefix, open := strings.CutSuffix(l, "…")
			return l == name || open && strings.HasPrefix(name, prefix)
		}) {
			t.Errorf("docs/reference/info.md lacks %s", name)
		}
	}
	for _, name := range listed {
		conditional := name == "store_faults" || strings.HasPrefix(name, "tls_") || strings.HasPrefix(name, "cluster_") || strings.HasSuffix(name, "…")
		if strings.Contains(name, "_") && !conditional && !slices.Contains(sent, name) {
			t.Errorf("docs/reference/info.md has %s, which the server does not send", name)
		}
	}
}
