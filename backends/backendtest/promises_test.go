package backendtest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of promises in docs/ENGINES.md")

// markdown is the table of promises for the documentation.
func markdown() string {
	var b strings.Builder
	b.WriteString("| rule | embedded | redis | mysql | zookeeper |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range Promises {
		fmt.Fprintf(&b, "| %s | %v | %v | %v | %v |\n", p.Rule, p.Embedded, p.Redis, p.MySQL, p.ZooKeeper)
	}
	return b.String()
}

func TestDocsShowTheTableOfPromises(t *testing.T) {
	const page, begin, end = "../../docs/ENGINES.md", "<!-- promises -->\n", "<!-- /promises -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	shown, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("docs/ENGINES.md has no place for the table: a line %q and, after it, one %q", strings.TrimSpace(begin), end)
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
	t.Error("docs/ENGINES.md shows another table of promises; run: go test ./backends/backendtest -update")
}

func TestEveryRuleProvesAPromiseAndEveryNameIsUsedOnce(t *testing.T) {
	known := map[string]bool{}
	for _, p := range Promises {
		if p.ID == "" || p.Rule == "" || known[p.ID] {
			t.Errorf("promise %q, %q", p.ID, p.Rule)
		}
		known[p.ID] = true
		for _, k := range []Keeping{p.Embedded, p.Redis, p.MySQL, p.ZooKeeper} {
			if (k.text == "") != (k.state == kept) || strings.ContainsAny(k.text, "|\n") {
				t.Errorf("promise %q: %v", p.ID, k)
			}
		}
	}
	names := map[string]bool{}
	for _, r := range rules() {
		if !known[r.promise] {
			t.Errorf("%q proves %q, which is no promise", r.name, r.promise)
		}
		if names[r.name] || r.name == "" || r.run == nil {
			t.Errorf("the name %q is used twice", r.name)
		}
		names[r.name] = true
	}
}
