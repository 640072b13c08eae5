package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
)

var quiet = slog.New(slog.DiscardHandler)

func newEngine(t *testing.T) *engine.Engine {
	e, err := engine.New(engine.Config{Clock: engine.NewClock(0)}, engine.Memory(), engine.Recovery{})
	must(t, err)
	t.Cleanup(e.Stop)
	return e
}

// sources returns the parts of a server with an engine in memory and without connections.
func sources(t *testing.T) Sources {
	e := newEngine(t)
	x := commands.New(commands.Config{Backend: e, Logger: quiet})
	t.Cleanup(x.Close)
	s := resp.NewServer(resp.Config{Committer: e, Logger: quiet}, x)
	x.Attach(s)
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return Sources{
		Build: Build{Engine: "embedded"}, Backend: e, Server: s, Commands: x,
		DroppedLines: func() (server, audit uint64) { return 0, 0 },
	}
}

// serve serves HTTP until the test ends, and returns the address.
func serve(t *testing.T, s *Server) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s.Serve(ln)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get(url)
	must(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	must(t, err)
	return reply.StatusCode, string(text)
}

func TestServerIsLiveWhileItStartsAndStops(t *testing.T) {
	s := New(Config{Logger: quiet, Pprof: true})
	url := "http://" + serve(t, s)
	want := func(when string, paths map[string]int) {
		t.Helper()
		for path, status := range paths {
			if got, body := get(t, url+path); got != status {
				t.Errorf("%s: %s replies %d %s, want %d", when, path, got, body, status)
			}
		}
	}
	state := func() (h Health) {
		_, body := get(t, url+"/readyz")
		must(t, json.Unmarshal([]byte(body), &h))
		return h
	}
	want("before Open", map[string]int{"/livez": 200, "/readyz": 503, "/leader": 503, "/metrics": 503, "/debug/pprof/": 503})
	if h := state(); h.State != "starting" || h.Ready {
		t.Errorf("/readyz before Open: %+v; want starting, not ready", h)
	}
	must(t, s.Open(sources(t)))
	want("after Open", map[string]int{"/livez": 200, "/readyz": 200, "/leader": 200, "/metrics": 200, "/debug/pprof/": 200})
	if _, text := get(t, url+"/metrics"); strings.Contains(text, "simba_cluster") {
		t.Error("/metrics of a single server has metrics of a cluster")
	}
	s.Drain()
	want("after Drain", map[string]int{"/livez": 200, "/readyz": 503, "/metrics": 200})
	if h := state(); h.State != "stopping" || h.Ready || !h.Store {
		t.Errorf("/readyz after Drain: %+v; want stopping, not ready, with the store up", h)
	}
}

// slowBackend is a Backend whose Owner answers only when the test closes reply.
type slowBackend struct {
	simba.Backend
	asked atomic.Int64
	err   error
	reply chan struct{}
}

func (b *slowBackend) Owner(ctx context.Context, _ string) (simba.Tenure, simba.Seq, error) {
	b.asked.Add(1)
	select {
	case <-b.reply:
	case <-ctx.Done():
		return simba.Tenure{}, 0, ctx.Err()
	}
	return simba.Tenure{}, 0, b.err
}

func TestRequestsShareAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowBackend{Backend: newEngine(t), err: errors.New("broken"), reply: make(chan struct{})}
		p := newProber(&Sources{Backend: b})
		defer p.close()
		results := make(chan error, 100)
		for range cap(results) {
			go func() { results <- p.check(t.Context()) }()
		}
		synctest.Wait()
		close(b.reply)
		for range cap(results) {
			if err := <-results; !errors.Is(err, b.err) {
				t.Errorf("check returned %v, want the error of the store", err)
			}
		}
		if err := p.check(t.Context()); !errors.Is(err, b.err) || b.asked.Load() != 1 {
			t.Errorf("the next check returned %v after %d probes, want the error of the store after 1", err, b.asked.Load())
		}
		time.Sleep(probeAge)
		b.err = nil
		if err := p.check(t.Context()); err != nil || b.asked.Load() != 2 {
			t.Errorf("check after probeAge returned %v after %d probes, want nil after 2", err, b.asked.Load())
		}
	})
}

func TestAProbeOfAStuckStoreEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowBackend{Backend: newEngine(t), reply: make(chan struct{})}
		p := newProber(&Sources{Backend: b})
		defer p.close()
		if err := p.check(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("check of a stuck store returned %v, want DeadlineExceeded", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(2 * probeAge)
		if err := p.check(ctx); !errors.Is(err, errNoProbe) {
			t.Errorf("check with a shorter timeout returned %v, want errNoProbe", err)
		}
	})
}

func TestReadinessOfAFailingStoreNeedsNoRight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.acl")
	must(t, os.WriteFile(path, []byte("user default on nopass -@all +ping"), 0o600))
	src := sources(t)
	b := &slowBackend{Backend: src.Backend, err: errors.New("broken"), reply: make(chan struct{})}
	close(b.reply)
	src.Backend = b
	addr := serveUsers(t, &src, access.Options{Path: path})
	for range 3 {
		if status, body := get(t, "http://"+addr+"/readyz"); status != http.StatusServiceUnavailable || strings.Contains(body, "broken") {
			t.Errorf("/readyz replies %d %s, want 503 without the cause", status, body)
		}
	}
	for _, d := range src.Commands.Stats().Denials {
		if d.N != 0 {
			t.Errorf("/readyz counted %d denials of %s, want none", d.N, d.Name)
		}
	}
}

// hungDisk is a Backend whose Commit returns only when the test closes answer.
type hungDisk struct {
	simba.Backend
	answer chan struct{}
}

func (d *hungDisk) Commit(seq simba.Seq) error {
	if seq != 0 {
		<-d.answer
	}
	return d.Backend.Commit(seq)
}

func TestAProbeWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		hold(t, e, "m")
		d := &hungDisk{Backend: e, answer: make(chan struct{})}
		p := newProber(&Sources{Backend: d})
		defer p.close()
		ctx, cancel := context.WithTimeout(t.Context(), probeWait)
		defer cancel()
		if err := p.check(ctx); !errors.Is(err, errNoProbe) {
			t.Errorf("check while the disk hangs returned %v, want errNoProbe", err)
		}
		close(d.answer)
		if err := p.check(t.Context()); err != nil {
			t.Errorf("check after the hang returned %v, want nil", err)
		}
	})
}

func hold(t *testing.T, b simba.Backend, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, _, err := b.Acquire(t.Context(), simba.AcquireRequest{Mutex: name, Contender: "a", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSeriesOfMutexesAreThoseOfTheGlobs(t *testing.T) {
	e := newEngine(t)
	hold(t, e, "a:1", "a:2", "b:1", "exact", "exactly")
	if _, _, err := e.Acquire(t.Context(), simba.AcquireRequest{Mutex: "a:1", Contender: "b", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		globs []string
		want  []string
	}{
		{nil, nil},
		{[]string{"a:*"}, []string{"a:1 true 1", "a:2 true 0"}},
		{[]string{"exact", "unknown"}, []string{"exact true 0"}},
		{[]string{"exact", "b:?", "a:[2]"}, []string{"a:2 true 0", "b:1 true 0", "exact true 0"}},
	} {
		got := readMutexes(t.Context(), e, c.globs)
		var lines []string
		for _, m := range got.list {
			lines = append(lines, fmt.Sprint(m.name, " ", m.held, " ", m.waiters))
		}
		slices.Sort(lines)
		if !slices.Equal(lines, c.want) || got.complete != (c.globs != nil) {
			t.Errorf("readMutexes of %q: %q, complete %v; want %q, %v", c.globs, lines, got.complete, c.want, c.globs != nil)
		}
	}
}

// picky is a Backend that cannot read one mutex, whose name is in the field refused.
type picky struct {
	simba.Backend
	refused string
}

func (b *picky) Owner(ctx context.Context, name string) (simba.Tenure, simba.Seq, error) {
	if name == b.refused {
		return simba.Tenure{}, 0, &simba.NameError{Argument: "mutex", Problem: "it is too long for the table"}
	}
	return b.Backend.Owner(ctx, name)
}

func TestAMutexThatTheStoreCannotReadHasNoSeries(t *testing.T) {
	e := newEngine(t)
	hold(t, e, "a", "b", "c")
	got := readMutexes(t.Context(), &picky{e, "b"}, []string{"a", "b", "c"})
	if len(got.list) != 2 || got.list[1].name != "c" || got.complete {
		t.Errorf("readMutexes without access to b: %+v; want a and c, not complete", got)
	}
}

func TestSeriesOfMutexesAreBounded(t *testing.T) {
	e := newEngine(t)
	var names []string
	for i := range maxMutexes + 1 {
		names = append(names, fmt.Sprint("m", i))
	}
	hold(t, e, names[1:]...)
	if got := readMutexes(t.Context(), e, []string{"m*"}); len(got.list) != maxMutexes || !got.complete {
		t.Errorf("of %d mutexes, readMutexes returned %d, complete %v; want all, true", maxMutexes, len(got.list), got.complete)
	}
	hold(t, e, names[0])
	for _, globs := range [][]string{{"m*"}, names} {
		if got := readMutexes(t.Context(), e, globs); len(got.list) != maxMutexes || got.complete {
			t.Errorf("of %d mutexes, readMutexes returned %d, complete %v; want %d, false", maxMutexes+1, len(got.list), got.complete, maxMutexes)
		}
	}
}

func TestLabelsOfMutexesAreDistinctAndReadable(t *testing.T) {
	seen := make(map[string]string)
	for _, c := range []struct{ name, want string }{
		{"jobs:1", "jobs:1"}, {"größe", "größe"}, {"a\nb", `a\nb`}, {`a\nb`, `a\\nb`}, {"\xff", `\xff`}, {`\xff`, `\\xff`},
		{"\x1b[31m", `\x1b[31m`}, {`"`, `\"`}, {`""`, `\"\"`}, {"", ""},
	} {
		got := label(c.name)
		if got != c.want || seen[got] != "" {
			t.Errorf("label(%q) is %s, want %s, which no other name has", c.name, got, c.want)
		}
		seen[got] = c.name
	}
}

func TestNamesFollowTheConventionsOfPrometheus(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range Metrics() {
		if names[m.Name] || !strings.HasPrefix(m.Name, "simba_") || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: the name is a duplicate or lacks the prefix, or the help is no sentence", m.Name)
		}
		if total := strings.HasSuffix(m.Name, "_total"); total != (m.Type() == "counter") {
			t.Errorf("%s is a %s, but only counters end in _total", m.Name, m.Type())
		}
		names[m.Name] = true
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
