package metrics

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// dashboard has the fields of the dashboard in deploy/grafana that the tests read.
type dashboard struct {
	Templating struct{ List []variable }
	Panels     []panel
}

type variable struct {
	Name, Type, Query string
	Datasource        struct{ UID string }
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	Targets                  []target
	FieldConfig              struct{ Defaults struct{ Unit string } }
}

type target struct {
	Instant            bool
	LegendFormat, Expr string
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	simbatest.Must(t, json.Unmarshal([]byte(read(t, dashboardFile)), &d))
	return d
}

func TestEachPanelIsDescribedAndFollowsTheVariables(t *testing.T) {
	const (
		source   = "${datasource}"
		selector = `{job=~"$job", instance=~"$instance"`
	)
	d := readDashboard(t)
	for _, v := range d.Templating.List {
		if v.Type != "datasource" && v.Datasource.UID != source {
			t.Errorf("the variable %s has the data source %q", v.Name, v.Datasource.UID)
		}
	}
	ids := make(map[int]bool)
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != source || len(p.Targets) == 0 {
			t.Errorf("the panel %q has no description, no unit, no query, or another data source than the variable", p.Title)
		}
		for _, q := range p.Targets {
			if n := strings.Count(q.Expr, "{"); q.LegendFormat == "" || n == 0 || strings.Count(q.Expr, selector) != n {
				t.Errorf("the panel %q has a query without a legend, or whose selector does not use the variables: %s", p.Title, q.Expr)
			}
		}
	}
}
