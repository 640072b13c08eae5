package conformance

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the table of promises in docs/reference/guarantees.md")

// markdown returns the table of promises for the documentation, and the list of their conditions.
// Each row has an anchor for links from other pages.
func markdown() string {
	var table, conditions strings.Builder
	table.WriteString("| promise | rule | embedded | redis | mysql | zookeeper |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, p := range Promises {
		fmt.Fprintf(&table, "| <a id=\"promise-%s\"></a>%s | %s |", p.ID, p.ID, p.Rule)
		for _, engine := range engines {
			k := p.of(engine)
			switch k.state {
			case kept:
				table.WriteString(" kept |")
			case keptIf:
				table.WriteString(" [if](#conditions) |")
			case notKept:
				table.WriteString(" [**no**](#conditions) |")
			default:
				table.WriteString(" – |")
			}
			if k.state == keptIf || k.state == notKept {
				conditions.WriteString(fold(fmt.Sprintf("- **%s, %s**: %v.", p.ID, engine, k)))
			}
		}
		table.WriteByte('\n')
	}
	return table.String() + "\n### Conditions\n\n" + conditions.String()
}

func fold(item string) string {
	const columns, indent = 100, "  "
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(item) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case length+1+n > columns:
			b.WriteString("\n" + indent)
			length = len(indent)
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += n
	}
	return b.String() + "\n"
}

func TestDocsShowTheTableOfPromises(t *testing.T) {
	const page, begin, end = root + "/docs/reference/guarantees.md", "<!-- promises -->\n", "<!-- /promises -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	shown, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("docs/reference/guarantees.md has no place for the table: it needs a line %q, and after it a line %q", strings.TrimSpace(begin), end)
	}
	if shown == markdown() {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+markdown()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Error("docs/reference/guarantees.md shows another table of promises; run: make docs")
}

var cited = regexp.MustCompile(`\[([^\]]+)\]\(#promise-([^)]+)\)`)

// The tables before the section Promises are written by hand. Each of their cells must name its
// promises.
func TestEachCellOfTheGuaranteesNamesAPromise(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/reference/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), "\n## Promises\n")
	var columns []string
	rows := 0
	for line := range strings.Lines(before) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "| "):
			columns = nil
		case columns == nil:
			columns = cells
		case !strings.HasPrefix(cells[0], " ---"):
			rows++
			for i, cell := range cells[1:] {
				cell = strings.TrimSpace(cell)
				matches := cited.FindAllStringSubmatch(cell, -1)
				if len(matches) == 0 && cell != "–" {
					t.Errorf("%s, %s: %q names no promise", cells[0], columns[i+1], cell)
				}
				for _, match := range matches {
					at := slices.IndexFunc(Promises, func(p Promise) bool { return p.ID == match[2] })
					engine := strings.Trim(columns[i+1], " `")
					if at < 0 || match[1] != match[2] {
						t.Errorf("%s, %s: there is no promise %s", cells[0], engine, match[0])
					} else if slices.Contains(engines, engine) && strings.Contains(cell, "(not ["+match[1]+"]") && Promises[at].of(engine).state == kept {
						t.Errorf("%s, %s: promise %s is kept without a condition", cells[0], engine, match[1])
					}
				}
			}
		}
	}
	if rows < 20 {
		t.Errorf("the tables have %d rows, want 20 or more", rows)
	}
}

const root = "../.."

var engines = []string{"embedded", "redis", "mysql", "zookeeper"}

// runsOn reports whether Run runs the rule on an engine. Rules with needs do not run on the
// embedded engine.
func (r rule) runsOn(engine string) bool { return engine != "embedded" || r.needs == 0 }

func TestEveryKeptPromiseHasATest(t *testing.T) {
	for _, p := range Promises {
		for _, engine := range engines {
			named := p.Tests.of(engine)
			switch k := p.of(engine); {
			case k.state == notKept || k.state == notApplicable:
				if len(named) > 0 {
					t.Errorf("promise %q: %v on %s, and yet it has tests there: %q", p.ID, k, engine, named)
				}
			case len(named) == 0 && !slices.ContainsFunc(rules(), func(r rule) bool { return r.promise == p.ID && r.runsOn(engine) }):
				t.Errorf("promise %q has neither a rule of the suite nor a test on %s", p.ID, engine)
			}
			for _, name := range named {
				if !exists(t, name) {
					t.Errorf("promise %q on %s: there is no test %s", p.ID, engine, name)
				}
			}
		}
	}
}

// exists reports whether a test exists. name is "folder.TestName".
func exists(t *testing.T, name string) bool {
	t.Helper()
	folder, function, _ := strings.Cut(name, ".")
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(function) + `\(\w+ \*testing\.T\) {`)
	return strings.HasPrefix(function, "Test") && slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return declared.Match(text)
	})
}
