package examples_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// inModule builds a program in go/ that is a module of its own. It returns the path of the program.
// It builds as make build does, to reuse what that has compiled.
func inModule(t *testing.T, name string) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	path := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-C", filepath.Join("go", name), "-trimpath", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

func stopped(t *testing.T, p *simbatest.Process) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(t); code != 0 {
		t.Errorf("the program exits with code %d:\n%s", code, p.Output())
	}
}

func TestGocronRunsTheJobOnTheNextLeader(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	program := inModule(t, "gocron")
	first := simbatest.Run(t, program, "--addr", s.Addr, "--by", "elector", "--every", "100ms")
	first.Wants(t, working)
	second := simbatest.Run(t, program, "--addr", s.Addr, "--by", "elector", "--every", "100ms")
	m := newMutex(t, s, example{name: "gocron"})
	m.waitFor("the second waits", func() bool { return m.waiters() == 1 })
	if out := second.Output(); out != "" {
		t.Errorf("the second process works while the first leads:\n%s", out)
	}
	stopped(t, first)
	second.Wants(t, working)
	stopped(t, second)
	m.waitFor("the mutex is free", func() bool { return m.owner() == "" })

	locked := simbatest.Run(t, program, "--addr", s.Addr, "--by", "locker", "--every", "100ms")
	locked.Wants(t, working)
	stopped(t, locked)
}

func TestPrometheusServesMetricsOfItsLocks(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	p := simbatest.Run(t, inModule(t, "prometheus"), "--addr", s.Addr, "--work", "1ms", "--http-addr", "127.0.0.1:0")
	url := p.Wants(t, `metrics at (\S+)$`)[1]
	m := newMutex(t, s, example{name: "report"})
	m.waitFor("the metrics count a tenure", func() bool {
		r, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		text := string(body)
		return strings.Contains(text, `simba_client_acquires_total{result="acquired"} `) &&
			strings.Contains(text, `simba_client_work_seconds_count{result="ok"} `)
	})
	stopped(t, p)
	m.waitFor("the mutex is free", func() bool { return m.owner() == "" })
}

func TestOpenTelemetryPrintsTheSpansOfItsLock(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	p := simbatest.Run(t, inModule(t, "opentelemetry"), "--addr", s.Addr, "--work", time.Millisecond.String())
	if code := p.Wait(t); code != 0 {
		t.Errorf("the example opentelemetry exits with code %d", code)
	}
	for _, span := range []string{"simba acquire", "simba work", "simba hold", "report"} {
		if !strings.Contains(p.Output(), `"Name": "`+span+`"`) {
			t.Errorf("the program has printed no span %q:\n%s", span, p.Output())
		}
	}
}
