package monitor

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/reference/metrics.md")

const (
	metricsPage = "../docs/reference/metrics.md"
	tableBegins = "<!-- make docs writes this table from monitor/table.go. -->\n"
	tableEnds   = "<!-- end of the table -->\n"
)

// tableMarkdown returns the table of the page.
func tableMarkdown() string {
	var b strings.Builder
	b.WriteString("\n| metric | type | labels | where | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, m := range Metrics() {
		labels := ""
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		where := m.Where
		if where == "" {
			where = "all"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type(), labels, where, m.Help)
	}
	b.WriteString("\n")
	return b.String()
}

func TestPageOfMetricsIsCurrent(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	must(t, err)
	head, rest, ok := strings.Cut(string(page), tableBegins)
	_, tail, ended := strings.Cut(rest, tableEnds)
	if !ok || !ended {
		t.Fatalf("%s has no table", metricsPage)
	}
	want := head + tableBegins + tableMarkdown() + tableEnds + tail
	switch {
	case *update:
		must(t, os.WriteFile(metricsPage, []byte(want), 0o644))
	case string(page) != want:
		t.Error("docs/reference/metrics.md is not what monitor/table.go gives; run: make docs")
	}
}
