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

// The modules' own tests cover what the programs do. This one runs them with a real server.
func TestProgramsOfOtherModulesRun(t *testing.T) {
	for name, c := range map[string]struct {
		mutex, wants string
		args         []string
		check        func(t *testing.T, m *mutex, match string)
		ends         bool // by itself; the others end by SIGTERM
	}{
		"gocron": {mutex: "gocron", wants: working, args: []string{"--by", "elector", "--every", "100ms"}},
		"prometheus": {
			mutex: "report", wants: `metrics at (\S+)$`, args: []string{"--work", "1ms", "--http-addr", "127.0.0.1:0"},
			check: func(t *testing.T, m *mutex, url string) {
				m.waitFor("the metrics count a tenure", func() bool {
					r, err := http.Get(url)
					simbatest.Must(t, err)
					defer r.Body.Close()
					body, err := io.ReadAll(r.Body)
					simbatest.Must(t, err)
					return strings.Contains(string(body), `simba_client_acquires_total{result="acquired"} `)
				})
			},
		},
		"opentelemetry": {mutex: "report", wants: `"Name": "simba hold"`, args: []string{"--work", "1ms"}, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := simbatest.Start(t)
			p := simbatest.Run(t, inModule(t, name), append([]string{"--addr", s.Addr}, c.args...)...)
			match := p.Wants(t, c.wants)
			m := newMutex(t, s, example{name: c.mutex})
			if c.check != nil {
				c.check(t, m, match[1])
			}
			if !c.ends {
				p.Signal(syscall.SIGTERM)
			}
			if code := p.Wait(t); code != 0 {
				t.Errorf("the program exits with code %d:\n%s", code, p.Output())
			}
			m.waitFor("the mutex is free", func() bool { return m.owner() == "" })
		})
	}
}
