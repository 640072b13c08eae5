package monitor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/pages"
)

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
	pages.Current(t, metricsPage, tableBegins, tableEnds, tableMarkdown())
}
