package metrics

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/monitor"
	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func clientConfig(a *certs.Authority, own ...certs.Signed) *tls.Config {
	config := &tls.Config{RootCAs: a.Pool, ServerName: "localhost"}
	for _, s := range own {
		config.Certificates = append(config.Certificates, s.Certificate)
	}
	return config
}

const users = `user default off
user admin on >admin-password ~* &* +@all
user scraper on >scraper-password -@all +info
user visitor on >visitor-password -@all +ping
`

func usersFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "users.acl")
	simbatest.Must(t, os.WriteFile(path, []byte(users), 0o600))
	return path
}

func TestHTTPNeedsAUserWithTheRight(t *testing.T) {
	s := start(t, "--durability", "memory", "--http-pprof", "--aclfile", usersFile(t))
	for _, c := range []struct {
		path, user, password string
		want                 int
	}{
		{"/metrics", "", "", http.StatusUnauthorized},
		{"/metrics", "scraper", "guess", http.StatusUnauthorized},
		{"/metrics", "nobody", "scraper-password", http.StatusUnauthorized},
		{"/metrics", "default", "", http.StatusUnauthorized},
		{"/metrics", "visitor", "visitor-password", http.StatusForbidden},
		{"/metrics", "scraper", "scraper-password", http.StatusOK},
		{"/metrics", "admin", "admin-password", http.StatusOK},
		{"/debug/pprof/", "", "", http.StatusUnauthorized},
		{"/debug/pprof/", "scraper", "scraper-password", http.StatusForbidden},
		{"/debug/pprof/", "admin", "admin-password", http.StatusOK},
		{"/debug/pprof/goroutine?debug=1", "admin", "admin-password", http.StatusOK},
		{"/livez", "", "", http.StatusOK},
		{"/readyz", "", "", http.StatusOK},
		{"/", "admin", "admin-password", http.StatusNotFound},
	} {
		status, header, body := s.get(t, c.path, c.user, c.password)
		if status != c.want {
			t.Errorf("GET %s as %q: status %d, want %d", c.path, c.user, status, c.want)
		}
		if asks := strings.HasPrefix(header.Get("WWW-Authenticate"), "Basic "); asks != (c.want == http.StatusUnauthorized) {
			t.Errorf("GET %s as %q: the header WWW-Authenticate is %q; only status 401 must have it", c.path, c.user, header.Get("WWW-Authenticate"))
		}
		if c.want != http.StatusOK && strings.Contains(body, "simba_") {
			t.Errorf("GET %s as %q shows metrics: %s", c.path, c.user, body)
		}
	}
	_, _, body := s.get(t, "/metrics", "scraper", "scraper-password")
	if n := value(t, body, "simba_denials_total", `reason="auth"`); n != 3 {
		t.Errorf("the metrics count %v wrong passwords, want 3", n)
	}
	if n := value(t, body, "simba_denials_total", `reason="command"`); n != 2 {
		t.Errorf("the metrics count %v denied requests, want 2", n)
	}
	s.Wants(t, `msg="audit: authentication failed" user=scraper addr=127.0.0.1:`)
	s.Wants(t, `msg="audit: permission denied" user=visitor addr=127.0.0.1:\d+ denied=command object=info context=http`)
}

func TestProfilesAreOffByDefault(t *testing.T) {
	s := start(t, "--durability", "memory")
	if status, _, _ := s.get(t, "/debug/pprof/", "", ""); status != http.StatusNotFound {
		t.Errorf("/debug/pprof/ replies with status %d, want 404", status)
	}
}

func TestHTTPSHasTheCertificatesOfTheRESPPort(t *testing.T) {
	a, dir := certs.NewAuthority(t, "test"), t.TempDir()
	cert, key := a.Sign(t, certs.Leaf{Name: "server"}).Write(t, dir, "server")
	s := start(t, "--durability", "memory", "--tls-addr", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", a.Write(t, dir, "ca"), "--tls-auth-clients", "yes", "--addr", "127.0.0.1:0", "--aclfile", usersFile(t))
	if status, _, body := s.get(t, "/metrics", "", ""); status != http.StatusBadRequest {
		t.Errorf("a plain HTTP request gets status %d, want 400: %s", status, body)
	}
	s.url = strings.Replace(s.url, "http:", "https:", 1)
	s.client = httpClient(t, clientConfig(a))
	if reply, err := s.client.Get(s.url + "/livez"); err == nil {
		reply.Body.Close()
		t.Errorf("GET without a certificate returns status %d, want an error", reply.StatusCode)
	}
	for name, want := range map[string]int{"scraper": http.StatusOK, "visitor": http.StatusForbidden, "stranger": http.StatusUnauthorized} {
		s.client = httpClient(t, clientConfig(a, a.Sign(t, certs.Leaf{Name: name})))
		if status, _, body := s.get(t, "/metrics", "", ""); status != want {
			t.Errorf("GET with the certificate of %s: status %d, want %d: %s", name, status, want, body)
		}
	}
	// A user name with a password takes precedence over the certificate.
	if status, _, _ := s.get(t, "/metrics", "visitor", "visitor-password"); status != http.StatusForbidden {
		t.Errorf("GET /metrics as visitor: status %d, want 403", status)
	}
}

func TestReadinessFollowsTheStore(t *testing.T) {
	store := stores.Redis(t)
	s := start(t, "--engine", "redis", "--redis-url", "redis://"+store.Addr, "--backend-timeout", "500ms")
	health := func() (status int, h monitor.Health) {
		status, _, body := s.get(t, "/readyz", "", "")
		if err := json.Unmarshal([]byte(body), &h); err != nil {
			t.Fatalf("/readyz replies %q, which is no JSON: %v", body, err)
		}
		if alive, _, _ := s.get(t, "/livez", "", ""); alive != http.StatusOK {
			t.Errorf("/livez replies with status %d, want 200", alive)
		}
		return status, h
	}
	if status, h := health(); status != http.StatusOK || !h.Ready || !h.Store {
		t.Errorf("with a running store, /readyz replies with status %d and %+v, want ready", status, h)
	}
	store.Stop()
	simbatest.Await(t, "the server is not ready", func() bool { status, _ := health(); return status == http.StatusServiceUnavailable })
	if _, h := health(); h.Ready || h.Store || h.State != "running" || !strings.Contains(h.Error, "engine redis unavailable") {
		t.Errorf("without a store, /readyz replies %+v, want its error", h)
	}
	logs := func(text string) func() bool {
		return func() bool { health(); return strings.Count(s.Output(), text) == 1 }
	}
	simbatest.Await(t, "the outage is in the log", logs(`level=WARN msg="the store does not answer" engine=redis err=`))
	store.Start()
	simbatest.Await(t, "the end of the outage is in the log", logs(`level=INFO msg="the store answers again" engine=redis away=`))
	simbatest.Await(t, "the server is ready again", func() bool { status, h := health(); return status == http.StatusOK && h.Ready && h.Error == "" })
}

func TestFaultOfTheStoreIsReportedAndNotFailed(t *testing.T) {
	store := stores.Redis(t, "--appendfsync", "always", "--maxmemory", "100mb")
	s := start(t, "--engine", "redis", "--redis-url", "redis://"+store.Addr, "--aclfile", usersFile(t))
	health := func(user string) (h monitor.Health) {
		status, _, body := s.get(t, "/readyz", user, user+"-password")
		if err := json.Unmarshal([]byte(body), &h); err != nil || status != http.StatusOK {
			t.Fatalf("/readyz replies with status %d and %q, %v; want ready", status, body, err)
		}
		return h
	}
	if h := health("scraper"); len(h.Faults) != 0 {
		t.Errorf("/readyz reports %q of a store without a fault", h.Faults)
	}
	for setting, words := range map[string]string{
		"appendfsync everysec":          "may lose the locks of the last second",
		"maxmemory-policy volatile-lru": "until then no new tenure begins",
	} {
		harmRedis(t, store.Addr, "CONFIG SET "+setting)
		simbatest.Await(t, "the fault is reported", func() bool {
			return slices.ContainsFunc(health("scraper").Faults, func(f string) bool {
				return strings.Contains(f, setting) && strings.Contains(f, words)
			})
		})
	}
	if h := health("visitor"); len(h.Faults) != 0 {
		t.Errorf("/readyz reports %q to a user without the right to INFO", h.Faults)
	}
}

func TestRecoveryDelayIsReportedAndNotFailed(t *testing.T) {
	s := start(t, "--durability", "async")
	send(t, s, "SIMBA.ACQUIRE", "m", "a", hour)
	s.Restart()
	var h monitor.Health
	status, _, body := s.get(t, "/readyz", "", "")
	if err := json.Unmarshal([]byte(body), &h); err != nil || status != http.StatusOK || h.RecoveryDelay <= 0 {
		t.Errorf("/readyz replies with status %d and %q, %v; want a recovery delay", status, body, err)
	}
}

func TestScrapePassesPromtool(t *testing.T) {
	promtool := need.Program(t, "promtool", "prometheus")
	s := start(t, "--metrics-mutexes", "m*")
	for _, words := range [][]any{
		{"SIMBA.ACQUIRE", `m"\`, "a", hour}, {"SET", "m\xff", "value", "NX", "PX", hour}, {"SIMBA.ACQUIRE", "m-größe", "a", hour},
		{"SET", "m\n2", "value", "NX", "PX", hour}, {"EVAL", "error({err='\xff odd code'})", 0}, {"NOSUCH"},
	} {
		send(t, s, words...)
	}
	text := s.scrape(t)
	for _, label := range []string{`mutex="m\\\"\\\\"`, `mutex="m\\xff"`, `mutex="m-größe"`, `mutex="m\\n2"`, `code="\\xff"`} {
		if !strings.Contains(text, label) {
			t.Errorf("no series in /metrics has %s", label)
		}
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

func TestMetricsAgreeWithInfo(t *testing.T) {
	s := start(t)
	for i := range 20 {
		send(t, s, "SIMBA.ACQUIRE", "m", "a", hour)
		send(t, s, "SIMBA.GUARD", "m", "b", hour)
		if i%2 == 0 {
			send(t, s, "SIMBA.RELEASE", "m", "a")
		}
	}
	c := simbatest.Conn(t, s.Server)
	info, err := redis.String(c.Do("INFO", "everything"))
	simbatest.Must(t, err)
	text := s.scrape(t)
	fields := make(map[string]string)
	for line := range lines(info) {
		name, v, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(v)
	}
	for field, series := range map[string][]string{
		"tenures_acquired":           {"simba_tenures_begun_total"},
		"tenures_released":           {"simba_tenures_total", `end="released"`},
		"leases_renewed":             {"simba_renewals_total"},
		"guards_lost":                {"simba_guards_total", `result="lost"`},
		"mutexes_held":               {"simba_mutexes_held"},
		"store_commits":              {"simba_journal_sync_seconds"},
		"store_bytes":                {"simba_journal_bytes_total"},
		"total_error_replies":        {"simba_error_replies_total"},
		"used_memory_dataset":        {"simba_dataset_bytes"},
		"total_connections_received": {"simba_connections_accepted_total"},
	} {
		if got := value(t, text, series[0], series[1:]...); fields[field] != strings.TrimSuffix(jsonNumber(got), ".0") {
			t.Errorf("INFO has %s %s, but the metric %v is %v", field, fields[field], series, got)
		}
	}
	if got := value(t, text, "simba_command_duration_seconds", `command="simba.guard"`); !strings.HasPrefix(fields["cmdstat_simba.guard"], "calls="+jsonNumber(got)+",") {
		t.Errorf("INFO has cmdstat_simba.guard %s, but the metrics have %v", fields["cmdstat_simba.guard"], got)
	}
}

func jsonNumber(f float64) string {
	text, _ := json.Marshal(f) // never fails for a number
	return string(text)
}
