package metrics

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// prometheus is a running Prometheus with the configuration and rules of deploy/prometheus.
type prometheus struct {
	*simbatest.Process
	web     *server // Prometheus itself; only url and client are set
	started time.Time
}

// startPrometheus starts a Prometheus that scrapes two servers. It scrapes and evaluates rules
// every second, and alerts fire after one second.
func startPrometheus(t *testing.T, a *certs.Authority, servers [2]*server) *prometheus {
	t.Helper()
	program := need.Program(t, "prometheus", "prometheus")
	dir := t.TempDir()
	a.Write(t, dir, "simba-resp")
	config := read(t, rulesDir, "prometheus.yml")
	for old, replacement := range map[string]string{
		"scrape_interval: 15s": "scrape_interval: 1s", "evaluation_interval: 15s": "evaluation_interval: 1s",
		"locks-1.example:7380": servers[0].target(), "locks-2.example:7380": servers[1].target(),
	} {
		if !strings.Contains(config, old) {
			t.Fatalf("prometheus.yml has no %s", old)
		}
		config = strings.Replace(config, old, replacement, 1)
	}
	rules := regexp.MustCompile(`(?m)^( +for: ).*$`).ReplaceAllString(read(t, rulesDir, "rules.yml"), "${1}1s")
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yml": rules, "simba-resp.password": "change-me-3\n"} {
		simbatest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t)))
	p := &prometheus{started: time.Now(), web: &server{url: "http://" + addr, client: httpClient(t, nil)}}
	p.Process = simbatest.Run(t, program, "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr)
	p.Wants(t, "Server is ready to receive web requests")
	return p
}

// target returns the server's address for HTTP, as in the label instance.
func (s *server) target() string {
	_, addr, _ := strings.Cut(s.url, "://")
	return addr
}

// ask sends a request to Prometheus' HTTP API, and decodes the data of the reply.
func (p *prometheus) ask(t *testing.T, path string, query url.Values, data any) {
	t.Helper()
	_, _, body := p.web.get(t, "/api/v1/"+path+"?"+query.Encode(), "", "")
	reply := struct{ Data any }{data}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || strings.Contains(body, `"status":"error"`) {
		t.Fatalf("the request %s %v to Prometheus: %v\n%s", path, query, err, body)
	}
}

// hasData reports whether a query has returned a number: now if instant is set, else at any time
// since Prometheus started.
func (p *prometheus) hasData(t *testing.T, query string, instant bool) bool {
	t.Helper()
	at := func(when time.Time) string { return strconv.FormatInt(when.Unix(), 10) }
	path, values := "query", url.Values{"query": {query}}
	if !instant {
		path = "query_range"
		values["start"], values["end"], values["step"] = []string{at(p.started)}, []string{at(time.Now())}, []string{"1"}
	}
	var data struct {
		Result []struct {
			Value  [2]any
			Values [][2]any
		}
	}
	p.ask(t, path, values, &data)
	for _, series := range data.Result {
		for _, sample := range append(series.Values, series.Value) {
			if sample[1] != nil && sample[1] != "NaN" {
				return true
			}
		}
	}
	return false
}

// substitute returns a function that replaces the variables of the dashboard, as Grafana does: by
// all jobs, all instances, and four scrape intervals.
func (p *prometheus) substitute(t *testing.T, d dashboard) func(string) string {
	t.Helper()
	known := []string{"$__rate_interval", "4s"}
	replace := func(query string) string { return strings.NewReplacer(known...).Replace(query) }
	labelValues := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		parts := labelValues.FindStringSubmatch(v.Query)
		if parts == nil {
			t.Fatalf("the query of the variable %s is %q, want label_values", v.Name, v.Query)
		}
		var values []string
		p.ask(t, "label/"+parts[2]+"/values", url.Values{"match[]": {replace(parts[1])}}, &values)
		if len(values) == 0 {
			t.Fatalf("the variable %s has no values", v.Name)
		}
		for i, value := range values {
			values[i] = strings.ReplaceAll(regexp.QuoteMeta(value), `\`, `\\`)
		}
		known = append(known, "$"+v.Name, "("+strings.Join(values, "|")+")")
	}
	return replace
}

// firing returns the instances for which an alert fires.
func (p *prometheus) firing(t *testing.T, name string) (instances []string) {
	t.Helper()
	var data struct {
		Alerts []struct {
			State               string
			Labels, Annotations map[string]string
		}
	}
	p.ask(t, "alerts", nil, &data)
	for _, a := range data.Alerts {
		for key, text := range a.Annotations {
			if strings.Contains(text, "error expanding template") {
				t.Fatalf("the annotation %s of the alert %s is %q", key, a.Labels["alertname"], text)
			}
		}
		if a.State == "firing" && a.Labels["alertname"] == name {
			instances = append(instances, a.Labels["instance"])
		}
	}
	return instances
}

const scrapedUsers = `user default on nopass ~* &* +@all
user dashboard on >change-me-3 -@all +info
`

// startScraped starts a server with TLS, and with the user in prometheus.yml.
func startScraped(t *testing.T, a *certs.Authority, args ...string) *server {
	t.Helper()
	dir := t.TempDir()
	cert, key := a.Sign(t, certs.Leaf{Name: "server"}).Write(t, dir, "server")
	acl := filepath.Join(dir, "users.acl")
	simbatest.Must(t, os.WriteFile(acl, []byte(scrapedUsers), 0o600))
	return start(t, append([]string{"--tls-addr", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key, "--aclfile", acl}, args...)...)
}

// load sends commands that change many metrics, and ignores the replies. Tenures end in each way,
// and there are a renewal, a lost guard, errors and a denial.
func load(t *testing.T, s *server) {
	t.Helper()
	c := simbatest.Conn(t, s.Server)
	defer c.Close()
	for _, words := range [][]any{
		{"SIMBA.ACQUIRE", "m:released", "a", hour, "WAIT", 1000}, {"SIMBA.ACQUIRE", "m:released", "a", hour},
		{"SIMBA.GUARD", "m:released", "b", hour}, {"SIMBA.RELEASE", "m:released", "a"},
		{"SIMBA.ACQUIRE", "m:expired", "a", 1}, {"SIMBA.ACQUIRE", "m:broken", "a", hour}, {"SIMBA.BREAK", "m:broken"},
		{"SIMBA.CHECK", "m:broken", "no token"}, {"NOSUCHCOMMAND"},
		{"AUTH", "dashboard", "change-me-3"}, {"SIMBA.OWNER", "m:released"},
	} {
		_, _ = c.Do(words[0].(string), words[1:]...) // some replies are errors
	}
}

// With a wrong label in its expression, an alert would never fire. So the test also checks that
// each series in the rules exists.
func TestQueriesOfDashboardAndRulesReturnData(t *testing.T) {
	need.Program(t, "prometheus", "prometheus")
	store, authority := stores.Redis(t), certs.NewAuthority(t, "test")
	embedded := startScraped(t, authority, "--metrics-mutexes", "m:*",
		"--cluster", "a=127.0.0.1:"+strconv.Itoa(stores.FreePort(t)), "--cluster-name", "a")
	simbatest.Await(t, "the cluster of one member leads", func() bool { return simbatest.Leader([]*simbatest.Server{embedded.Server}) == 0 })
	proxy := startScraped(t, authority, "--engine", "redis", "--redis-url", "redis://"+store.Addr, "--backend-timeout", "500ms")
	p := startPrometheus(t, authority, [2]*server{embedded, proxy})

	// A mutex with a waiter, a handoff, and a refusal by maxmemory.
	do("SIMBA.ACQUIRE", "m:held", "a", hour)(t, embedded)
	do("SIMBA.ACQUIRE", "m:held", "b", hour)(t, embedded)
	do("SIMBA.ACQUIRE", "m:handed", "a", hour)(t, embedded)
	w := simbatest.Wait(t, embedded.Server, "m:handed", "b")
	do("SIMBA.RELEASE", "m:handed", "a")(t, embedded)
	w.Granted(t)
	for _, words := range [][]any{{"CONFIG", "SET", "maxmemory", 1}, {"SIMBA.ACQUIRE", "m:refused", "a", hour}, {"CONFIG", "SET", "maxmemory", 0}} {
		do(words...)(t, embedded)
	}
	scraped := func() (times float64) {
		var data struct{ Result []struct{ Value [2]any } }
		p.ask(t, "query", url.Values{"query": {"min(count_over_time(simba_store_up[1h])) * (count(simba_store_up) == bool 2)"}}, &data)
		if len(data.Result) > 0 {
			times, _ = strconv.ParseFloat(data.Result[0].Value[1].(string), 64)
		}
		return times
	}
	simbatest.Await(t, "both servers are scraped", func() bool { return scraped() > 0 })

	d := readDashboard(t)
	substitute := p.substitute(t, d)
	var without []string // queries without data so far
	defer func() {
		for _, query := range without {
			t.Errorf("the query returns no data: %s", query)
		}
	}()
	instant := make(map[string]bool)
	for _, panel := range d.Panels {
		for _, q := range panel.Targets {
			query := substitute(q.Expr)
			without = append(without, query)
			instant[query] = q.Instant
		}
	}
	simbatest.Await(t, "every query of the dashboard returns data", func() bool {
		load(t, embedded)
		load(t, proxy)
		before := scraped()
		simbatest.Await(t, "both servers are scraped again", func() bool { return scraped() > before })
		without = slices.DeleteFunc(without, func(query string) bool { return p.hasData(t, query, instant[query]) })
		return len(without) == 0
	})

	store.Stop()
	simbatest.Await(t, "SimbaStoreDown fires for the server whose store is gone", func() bool {
		load(t, proxy)
		return slices.Equal(p.firing(t, "SimbaStoreDown"), []string{proxy.target()})
	})
	selectors := p.selectors(t)
	if len(selectors) == 0 {
		t.Error("selectors finds no series in the rules")
	}
	for _, selector := range selectors {
		simbatest.Await(t, "there are series of "+selector, func() bool {
			return p.hasData(t, "present_over_time("+selector+"[10m])", true)
		})
	}
	store.Start()
	simbatest.Await(t, "SimbaStoreDown no longer fires", func() bool { return len(p.firing(t, "SimbaStoreDown")) == 0 })
}

// selectors returns the series that the rules read, such as up{job="x"}.
func (p *prometheus) selectors(t *testing.T) []string {
	t.Helper()
	var data struct {
		Groups []struct{ Rules []struct{ Query string } }
	}
	p.ask(t, "rules", nil, &data)
	var queries strings.Builder
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			queries.WriteString(r.Query + "\n")
		}
	}
	return names(queries.String(), `\b((?:(?:instance:)?(?:simba|process)_[\w:]+|up)(?:\{[^}]*\})?)`)
}
