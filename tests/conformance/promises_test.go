package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/pages"
)

// markdown returns the table of promises for the documentation, and the list of their conditions.
// Each row has an anchor for links from other pages.
func markdown(t *testing.T) string {
	var table, conditions strings.Builder
	table.WriteString("| promise | rule |")
	for _, e := range engines {
		table.WriteString(" " + e.name + " |")
	}
	table.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(engines)) + "\n")
	keeps := allKeepings(t)
	for _, p := range Promises {
		fmt.Fprintf(&table, "| <a id=\"promise-%s\"></a>%s | %s |", p.ID, p.ID, p.Rule)
		for _, e := range engines {
			k := keeps[e.name][p.ID]
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
				conditions.WriteString(pages.Fold(fmt.Sprintf("- **%s, %s**: %v.", p.ID, e.name, k), "  "))
			}
		}
		table.WriteByte('\n')
	}
	return table.String() + "\n### Conditions\n\n" + conditions.String()
}

// allKeepings returns how the engines keep the promises, by engine and promise.
func allKeepings(t *testing.T) map[string]map[string]Keeping {
	all := make(map[string]map[string]Keeping)
	for _, e := range engines {
		all[e.name] = keepings(t, filepath.Join(root, e.folder))
	}
	return all
}

func TestDocsShowTheTableOfPromises(t *testing.T) {
	pages.Current(t, root+"/docs/reference/guarantees.md", "<!-- promises -->\n", "<!-- /promises -->", markdown(t))
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
	keeps := allKeepings(t)
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
					} else if keeps[engine] != nil && strings.Contains(cell, "(not ["+match[1]+"]") && keeps[engine][match[1]].state == kept {
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

// runsOn reports whether Run runs the rule on an engine. Rules with needs run only on engines with a
// store.
func (r rule) runsOn(engine string) bool {
	return r.needs == 0 || engine != "embedded" && engine != "cluster"
}

func TestEveryKeptPromiseHasATest(t *testing.T) {
	keeps := allKeepings(t)
	for _, p := range Promises {
		for _, e := range engines {
			engine, k := e.name, keeps[e.name][p.ID]
			named := k.tests
			switch {
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
