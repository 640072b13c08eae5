package simulation

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

// seeded maps each seeded bug to the rule that it breaks. The first violation must name this rule.
var seeded = map[string]string{
	"reply-before-fsync":              ruleDurable,
	"fsync-skipped":                   ruleDurable,
	"notice-before-durable":           ruleDurable,
	"free-before-durable":             ruleDurable,
	"token-reset":                     ruleTokens,
	"double-grant-on-retry":           ruleTokens,
	"release-without-token-check":     ruleTokens,
	"guard-revives":                   ruleGuard,
	"renewal-keeps-windows":           ruleGuard,
	"first-windows-stay":              ruleWindows,
	"early-expiry":                    ruleOneOwner,
	"late-expiry":                     ruleOneOwner,
	"leases-by-wall-clock":            ruleClock,
	"restart-cuts-leases":             ruleClock,
	"grant-during-recovery-delay":     ruleDurable,
	"lost-wake-up":                    ruleWakeup,
	"reservation-never-ends":          ruleWakeup,
	"last-come-first-served":          ruleOrder,
	"grant-to-disconnected-waiter":    ruleNothingLeft,
	"disconnected-waiter-keeps-grant": ruleDeadWaiter,
	"queue-leak":                      ruleNothingLeft,
	"session-keeps-lease":             ruleNothingLeft,
	"notice-names-next-waiter":        ruleNotices,
	"fault-not-fatal":                 ruleFatal,
	"superseded-wait-unanswered":      ruleLiveness,
	"waiter-not-requeued":             ruleWakeup,
	"segment-released-early":          ruleDurable,
	"replay-out-of-order":             ruleDurable,
	"lost-update":                     ruleReplies,
}

// caughtElsewhere has bugs that the simulation seldom triggers. The tests of package bugs catch
// them. Bugs of the core of store engines, store-…, are caught in backends/proxy, those of the
// engines redis-… and zookeeper-… in their packages, and those of waits via SIMBA.NEXT, wait-…, in
// tests/client. Those of clusters, cluster-…, have a table of their own.
var caughtElsewhere = []string{"torn-record-accepted"}

// judged has all rules. Each needs a seeded bug, which proves that the judge detects violations.
var judged = []string{
	ruleOneOwner, ruleWindows, ruleGuard, ruleTokens, ruleDurable, ruleDeadWaiter, ruleOrder, ruleWakeup,
	ruleNothingLeft, ruleClock, ruleNotices, ruleFatal, ruleLiveness, ruleReplies,
}

func TestEachBugHasARuleAndEachRuleABug(t *testing.T) {
	names := bugs.Names(t)
	for _, bug := range names {
		kind, _, _ := strings.Cut(bug, "-")
		_, ofCluster := clusterSeeded[bug]
		if seeded[bug] == "" && !ofCluster && !slices.Contains(caughtElsewhere, bug) && !slices.Contains([]string{"store", "redis", "zookeeper", "wait"}, kind) {
			t.Errorf("the tables seeded and clusterSeeded do not have the bug %s", bug)
		}
	}
	broken := map[string]bool{}
	for bug, rule := range seeded {
		if broken[rule] = true; !slices.Contains(names, bug) {
			t.Errorf("the table seeded names %s, but tests/bugs has no such bug", bug)
		}
	}
	for bug := range clusterSeeded {
		if !slices.Contains(names, bug) {
			t.Errorf("the table clusterSeeded names %s, but tests/bugs has no such bug", bug)
		}
	}
	for _, rule := range judged {
		if !broken[rule] {
			t.Errorf("no seeded bug breaks the rule %q", rule)
		}
	}
}

const mostSeeds = 1000

// firstViolation matches the failure text of TestSimulation. Its groups are the seed, and the rule
// of the first violation.
var firstViolation = regexp.MustCompile(`seed (\d+) \(.*\):\n\s+([^:\n]+): `)

func TestSeededBugsAreCaught(t *testing.T) {
	bugs.SkipUnlessWanted(t)
	var (
		text strings.Builder
		mu   sync.Mutex // guards table
	)
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "bug\tseeds\ttime\tthe rule that caught it")
	t.Cleanup(func() {
		table.Flush()
		t.Logf("\n%s", text.String())
	})
	for bug, rule := range seeded {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			// -cpu 1 runs the seeds in their order.
			out, err := bugs.Go(t, bug, "test", "-count", "1", "-cpu", "1", "-vet", "off", "-timeout", "30m",
				"-run", "^TestSimulation$", "./tests/simulation", "-from", "1", "-seeds", strconv.Itoa(mostSeeds))
			found := firstViolation.FindStringSubmatch(out)
			if err == nil || found == nil {
				t.Errorf("%d seeds found no violation: %v\n%s", mostSeeds, err, out)
				return
			}
			mu.Lock()
			fmt.Fprintf(table, "%s\t%s\t%v\t%s\n", bug, found[1], time.Since(began).Round(100*time.Millisecond), found[2])
			mu.Unlock()
			if found[2] != rule {
				t.Errorf("the bug breaks the rule %q, but the first violation is of %q:\n%s", rule, found[2], out)
			}
			seed, err := strconv.ParseUint(found[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if run := simulate(t, seed); len(run.violations) > 0 {
				t.Errorf("the same seed breaks a rule without the bug: %v", run)
			}
		})
	}
}
