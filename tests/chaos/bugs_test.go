//go:build bugs

package chaos

import (
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/bugs"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The other tests of this package judge histories that were made by hand. Here all of it is tested at once, from the
// clients to the judge: servers that break the rules on purpose must be caught.

// hunting is how long windows follow one another until a bug is caught. The first one does, as a rule.
const hunting = 8 * time.Second

// seeded are bugs that clients can notice, each with a fault that brings it out and the words of one of those who
// judge: each of the three must catch some.
var seeded = []struct {
	bug   bugs.Bug
	fault string
	says  string
}{
	{bugs.TokenReset, "server killed", "the token does not grow"},
	{bugs.DoubleGrantOnRetry, "clients delayed", "in the history of server 0"},
	{bugs.EarlyExpiry, "clients delayed", "two owners"},
	{bugs.ReleaseWithoutTokenCheck, "clients delayed", "no order of its operations keeps the rules"},
	{bugs.GuardRevives, "clients delayed", "no order of its operations keeps the rules"},
	{bugs.RenewalKeepsWindows, "clients delayed", "no order of its operations keeps the rules"},
}

func TestSeededBugsOfARealServerAreCaught(t *testing.T) {
	path := buildWithBugs(t)
	t.Run(bugs.None.String(), func(t *testing.T) {
		n := with(t, path, bugs.None)
		for _, fault := range []string{"server killed", "clients delayed"} {
			if v := n.through(named(t, fault)); len(v.violations) > 0 || v.unknown > 0 {
				t.Errorf("%s: %d not decided, %q", fault, v.unknown, v.violations)
			}
		}
	})
	for _, s := range seeded {
		t.Run(s.bug.String(), func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir()) // nobody wants to read what was wrong
			n := with(t, path, s.bug)
			var found []string
			for began := time.Now(); time.Since(began) < hunting; {
				v, _ := n.once(named(t, s.fault), fewest)
				found = append(found, v.violations...)
				if slices.ContainsFunc(found, func(v string) bool { return strings.Contains(v, s.says) }) {
					return
				}
			}
			t.Errorf("nobody says %q of it; found was %q", s.says, found)
		})
	}
}

// buildWithBugs builds a server in which bugs can be turned on.
func buildWithBugs(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "simba-resp")
	build := exec.Command("go", "build", "-tags", "bugs", "-o", path, "github.com/simba-resp/simba-resp/cmd/simba-resp")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return path
}

// with starts a server of the embedded engine that has a bug from its start on, and returns its windows.
func with(t *testing.T, path string, bug bugs.Bug) *window {
	t.Helper()
	s := &seededServer{t: t, path: path, bug: bug, dir: memory(t), addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t)))}
	s.Start()
	w := &world{engine: "embedded", rules: documented["embedded"], servers: []host{{s, s.addr}}}
	w.hang(t)
	return &window{t: t, w: w, rng: rand.New(rand.NewPCG(rand.Uint64(), 0)), longer: 1}
}

func named(t *testing.T, name string) fault {
	t.Helper()
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
	if i < 0 {
		t.Fatalf("there is no fault %q", name)
	}
	return faults[i]
}

// seededServer is a server with a bug. It is no simbatest.Server: that has nothing of its test's environment, which
// names the bug.
type seededServer struct {
	*simbatest.Process

	t               *testing.T
	path, addr, dir string
	bug             bugs.Bug
}

func (s *seededServer) Start() {
	cmd := exec.Command(s.path, "--addr", s.addr, "--data-dir", s.dir)
	cmd.Env = append(simbatest.Environ(), "SIMBA_BUG="+s.bug.String())
	s.Process = simbatest.RunCmd(s.t, cmd)
	s.Wants(s.t, `msg=ready .*addr=`)
}

func (s *seededServer) Log() string { return s.Output() }
