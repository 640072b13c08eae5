package simulation

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

// clusterBug says which test finds a bug of a cluster.
type clusterBug struct {
	rules []string // that the simulation names; which one is the first depends on the order of goroutines
	// Where no rule is given, a test of another package finds the bug.
	folder, test string
}

// clusterSeeded has the seeded bugs of clusters.
var clusterSeeded = map[string]clusterBug{
	"cluster-vote-not-synced":               {rules: []string{ruleVote}},
	"cluster-entry-not-synced":              {rules: lost},
	"cluster-commit-before-quorum":          {rules: lost},
	"cluster-notice-before-quorum":          {rules: lost},
	"cluster-check-without-round":           {folder: "./cluster", test: "TestConfirmNeedsAnAnswerOfAMajority"},
	"cluster-serves-before-its-first-entry": {rules: lost},
	"cluster-lease-shortened-at-takeover":   {rules: lost},
	"cluster-snapshot-keeps-instants":       {rules: lost},
	"cluster-uncommitted-in-checkpoint":     {folder: "./persist", test: "TestACrashAtAnyMomentLosesNoEntryOfAMember"},
	"cluster-suffix-not-dropped":            {rules: lost},
	"cluster-bootstrap-beside-a-cluster":    {rules: append(lost, ruleProgress)},
	"cluster-lost-disk-keeps-its-id":        {rules: append(lost, ruleVote)},
	"cluster-replaced-member-stays":         {rules: []string{ruleProgress}},
	"cluster-each-leader-draws-the-floor":   {rules: []string{ruleClusterTokens}},
	"cluster-snapshot-without-floor":        {folder: "./persist", test: "TestAMemberLeadsWithTheFloorsOfItsSnapshot"},
	"cluster-shared-write-not-confirmed":    {folder: "./persist", test: "TestCommitConfirmsUnlessItsWriteBeginsLater"},
	"cluster-session-released-at-transfer":  {folder: "./cmd/simba-resp", test: "TestLeaderThatStopsHandsOverAndReleasesNoSessionLease"},
	"cluster-old-term-proposes":             {folder: "./cluster", test: "TestRequestsOfAnEarlierTermFail"},
}

// lost has the rules that break when members do not have the same entries. Which one breaks first
// depends on the clients.
var lost = []string{ruleClusterOwner, ruleKept, ruleStale, ruleClusterTokens, ruleClusterFatal}

const mostClusterSeeds = 300

func TestSeededBugsOfClustersAreCaught(t *testing.T) {
	bugs.SkipUnlessWanted(t)
	for bug, by := range clusterSeeded {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			args := []string{"-count", "1", "-vet", "off", "-timeout", "30m"}
			if by.test != "" {
				out, err := bugs.Go(t, bug, "test", append(args, "-run", "^"+by.test+"$", by.folder)...)
				if err == nil || !strings.Contains(out, "--- FAIL: "+by.test) {
					t.Errorf("%s does not fail: %v\n%s", by.test, err, out)
				}
				return
			}
			out, err := bugs.Go(t, bug, "test", append(args, "-run", "^TestClusterSimulation$", "./tests/simulation",
				"-from", "1", "-seeds", strconv.Itoa(mostClusterSeeds))...)
			if err == nil {
				t.Errorf("%d seeds found no violation:\n%s", mostClusterSeeds, out)
				return
			}
			found := firstViolation.FindStringSubmatch(out)
			if found == nil || !slices.Contains(by.rules, found[2]) {
				t.Errorf("the bug breaks one of the rules %q, but the failure is:\n%s", by.rules, out)
				return
			}
			t.Logf("seed %s: %s", found[1], found[2])
		})
	}
}
