// Package metrics tests what the server serves over HTTP: metrics, health and profiles. It also
// tests the rules and the dashboard in deploy that use the metrics.
package metrics

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// server is a simba-resp that serves HTTP.
type server struct {
	*simbatest.Server
	url    string // such as http://127.0.0.1:1234
	client *http.Client
}

// start starts a server that serves HTTP on a free port.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t)))
	s := simbatest.Start(t, append([]string{"--http-addr", addr}, args...)...)
	return &server{s, "http://" + addr, httpClient(t, nil)}
}

func httpClient(t *testing.T, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: simbatest.Patience}
}

// get sends a GET request. If user is empty, it sends no credentials.
func (s *server) get(t *testing.T, path, user, password string) (status int, header http.Header, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	simbatest.Must(t, err)
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	reply, err := s.client.Do(r)
	simbatest.Must(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	simbatest.Must(t, err)
	return reply.StatusCode, reply.Header, string(text)
}

func (s *server) scrape(t *testing.T) string {
	t.Helper()
	status, _, body := s.get(t, "/metrics", "", "")
	if status != http.StatusOK {
		t.Fatalf("/metrics replies with status %d: %s", status, body)
	}
	return body
}

// value returns the sum of the series of a metric whose labels contain all texts. For a histogram,
// it sums the numbers of observations.
func value(t *testing.T, scrape, metric string, labels ...string) (sum float64) {
	t.Helper()
	for line := range lines(scrape) {
		name, number, ok := cutSeries(line)
		if !ok || family(name) != metric && family(name) != metric+"_count" {
			continue
		}
		if !containsAll(name, labels) {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatalf("the line %q of /metrics has no number: %v", line, err)
		}
		sum += n
	}
	return sum
}

func lines(text string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for scan := bufio.NewScanner(strings.NewReader(text)); scan.Scan(); {
			if !yield(scan.Text()) {
				return
			}
		}
	}
}

// cutSeries splits a line into the series and its value. A label may contain spaces.
func cutSeries(line string) (series, value string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 || strings.HasPrefix(line, "#") {
		return "", "", false
	}
	return line[:i], line[i+1:], true
}

// family returns the name of a series without its labels.
func family(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

// startUnread starts a server whose log goes to a pipe that nobody reads.
func startUnread(t *testing.T) *server {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t)))
	s := simbatest.StartUnread(t, "--http-addr", addr, "--durability", "memory")
	web := &server{&simbatest.Server{Addr: s.Addr}, "http://" + addr, httpClient(t, nil)}
	simbatest.Await(t, "the server is ready", func() bool {
		reply, err := web.client.Get(web.url + "/readyz")
		if err != nil {
			return false
		}
		reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	})
	return web
}

// floodLog sends audited commands until the pipe and the server's buffer are full.
func floodLog(t *testing.T, s *server) {
	c := simbatest.Conn(t, s.Server)
	defer c.Close()
	for range 40 {
		for range 500 {
			simbatest.Must(t, c.Send("CONFIG", "GET", "maxclients"))
		}
		simbatest.Do(t, c, "")
	}
}
