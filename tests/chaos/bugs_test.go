package chaos

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/bugs"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// Most tests of this package judge histories made by hand. The test in this file uses all parts,
// from the clients to the judges. It builds servers with a bug, and the judges must find the bug.

// searchTime limits the search for one bug. Most searches need only one window.
const searchTime = 8 * time.Second

// seeded has bugs that clients can notice, the fault that provokes each, and words of the judge
// that must find it. Each of the three judges finds at least one.
var seeded = []struct{ bug, fault, says string }{
	{"token-reset", "server killed", "the token does not grow"},
	{"double-grant-on-retry", "clients delayed", "in the history of server 0"},
	{"early-expiry", "clients delayed", "two owners"},
	{"release-without-token-check", "clients delayed", "no order of its operations keeps the rules"},
	{"guard-revives", "clients delayed", "no order of its operations keeps the rules"},
	{"renewal-keeps-windows", "clients delayed", "no order of its operations keeps the rules"},
}

func TestSeededBugsOfARealServerAreCaught(t *testing.T) {
	bugs.SkipUnlessWanted(t)
	t.Run("none", func(t *testing.T) {
		n := against(t, simbatest.Binary(t))
		for _, fault := range []string{"server killed", "clients delayed"} {
			if v := n.untilItCounts(named(t, fault)); len(v.violations) > 0 || v.unknown > 0 {
				t.Errorf("%s: porcupine found no result for %d histories; violations: %q", fault, v.unknown, v.violations)
			}
		}
	})
	for _, s := range seeded {
		t.Run(s.bug, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "simba-resp")
			if out, err := bugs.Go(t, s.bug, "build", "-o", program, "./cmd/simba-resp"); err != nil {
				t.Fatalf("go build with the bug: %v\n%s", err, out)
			}
			t.Setenv("TMPDIR", t.TempDir()) // nobody will read the judges' files
			n := against(t, program)
			var found []string
			for began := time.Now(); time.Since(began) < searchTime; {
				v, _ := n.once(named(t, s.fault), fewest)
				found = append(found, v.violations...)
				if slices.ContainsFunc(found, func(v string) bool { return strings.Contains(v, s.says) }) {
					return
				}
			}
			t.Errorf("no judge reports %q; the judges report: %q", s.says, found)
		})
	}
}

// against returns a window for an embedded server, which runs the given program.
func against(t *testing.T, program string) *window {
	t.Helper()
	s := simbatest.New(t, "--data-dir", memory(t))
	s.Command = []string{program}
	s.Start()
	w := &world{engine: "embedded", rules: documented["embedded"], servers: []host{{s, s.Addr}}}
	w.openRoutes(t)
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
