package metrics

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/monitor"
	"github.com/simba-resp/simba-resp/tests/need"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	rulesDir      = "../../deploy/prometheus"
	dashboardFile = "../../deploy/grafana/simba-resp.json"
	monitorPage   = "../../docs/guides/monitor.md"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	simbatest.Must(t, err)
	return string(text)
}

func TestRulesPassPromtool(t *testing.T) {
	promtool := need.Program(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = rulesDir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// names returns the first group of each match, sorted and without repetitions.
func names(text, pattern string) []string {
	found := make(map[string]bool)
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found[match[1]] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func TestEachAlertIsTestedAndDocumented(t *testing.T) {
	alerts := names(read(t, rulesDir, "rules.yml"), `(?m)^ +- alert: (\w+)$`)
	if len(alerts) == 0 {
		t.Fatal("rules.yml has no alerts")
	}
	// In rules_test.yml, a sample of the series ALERTS says that an alert must fire.
	if tested := names(read(t, rulesDir, "rules_test.yml"), `value: 1, labels: 'ALERTS\{alertname="(\w+)"`); !slices.Equal(tested, alerts) {
		t.Errorf("rules_test.yml tests the alerts\n%v\nrules.yml has\n%v", tested, alerts)
	}
	if documented := names(read(t, monitorPage), "(?m)^\\| `(Simba\\w+)` \\|"); !slices.Equal(documented, alerts) {
		t.Errorf("the table of monitor.md has\n%v\nrules.yml has\n%v", documented, alerts)
	}
}

// humanize adds SI prefixes: 0.01 requests a second become 10m, which looks like minutes.
func TestNumbersInAlertsHaveNoPrefixes(t *testing.T) {
	if found := names(read(t, rulesDir, "rules.yml"), `(\{\{[^}]*\| humanize )`); len(found) > 0 {
		t.Errorf("rules.yml has %q, which adds SI prefixes: use printf", found)
	}
}

func TestRulesAndDashboardNameExistingMetrics(t *testing.T) {
	known := make(map[string]bool)
	for _, m := range monitor.Metrics() {
		if m.Type() != "histogram" {
			known[m.Name] = true
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			known[m.Name+suffix] = true
		}
	}
	// A recording rule has a name such as instance:simba_hold_seconds:p99_rate5m.
	recorded := regexp.MustCompile(`\binstance:\w+:\w+`)
	for _, file := range []string{filepath.Join(rulesDir, "rules.yml"), filepath.Join(rulesDir, "rules_test.yml"), dashboardFile} {
		found := names(recorded.ReplaceAllString(read(t, file), ""), `\b(simba_\w+)`)
		if len(found) == 0 {
			t.Errorf("%s uses no metrics", file)
		}
		for _, name := range found {
			if !known[name] {
				t.Errorf("%s uses %s, which is not a metric of monitor/table.go", file, name)
			}
		}
	}
}
