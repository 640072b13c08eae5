//go:build bugs

package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/simba-resp/simba-resp/bugs"
)

// seededBug is a bug, with the rule as whose breach it must be found.
type seededBug struct {
	bug  bugs.Bug
	rule string
}

// seeded are all bugs but those that are caught elsewhere.
var seeded = []seededBug{
	{bugs.ReplyBeforeFsync, ruleDurable},
	{bugs.FsyncSkipped, ruleDurable},
	{bugs.NoticeBeforeDurable, ruleDurable},
	{bugs.FreeBeforeDurable, ruleDurable},
	{bugs.TokenReset, ruleTokens},
	{bugs.DoubleGrantOnRetry, ruleTokens},
	{bugs.ReleaseWithoutTokenCheck, ruleTokens},
	{bugs.GuardRevives, ruleGuard},
	{bugs.RenewalKeepsWindows, ruleGuard},
	{bugs.FirstWindowsStay, ruleWindows},
	{bugs.EarlyExpiry, ruleOneOwner},
	{bugs.LateExpiry, ruleOneOwner},
	{bugs.ClockStepHonoured, ruleClock},
	{bugs.RestartCutsLeases, ruleClock},
	{bugs.GrantInQuietTime, ruleDurable},
	{bugs.LostWakeUp, ruleWakeup},
	{bugs.ReservationNeverEnds, ruleWakeup},
	{bugs.LastComeFirstServed, ruleOrder},
	{bugs.GrantToTheDead, ruleDeadWaiter},
	{bugs.DeadKeepsGrant, ruleDeadWaiter},
	{bugs.QueueLeak, ruleNothingLeft},
	{bugs.SessionKeepsLease, ruleNothingLeft},
	{bugs.TurnNamesTheNext, ruleNotices},
	{bugs.FaultNotFatal, ruleFatal},
	{bugs.OldWaitForgotten, ruleLiveness},
	{bugs.UntoldForgotten, ruleWakeup},
	{bugs.SegmentReleasedEarly, ruleDurable},
	{bugs.ReplayOutOfOrder, ruleDurable},
	{bugs.LostUpdate, ruleReplies},
}

// elsewhere are bugs that tests of their own package catch: the simulation meets what shows
// them too seldom.
var elsewhere = []bugs.Bug{bugs.TornRecordAccepted}

// judged are all rules: one that no bug breaks may have a judge that sees nothing.
var judged = []string{
	ruleOneOwner, ruleWindows, ruleGuard, ruleTokens, ruleDurable, ruleDeadWaiter, ruleOrder, ruleWakeup,
	ruleNothingLeft, ruleClock, ruleNotices, ruleFatal, ruleLiveness, ruleReplies,
}

const (
	mostSeeds    = 1000 // within so many runs a bug must be found
	controlSeeds = 50   // so many runs, at least, must show nothing of a server without bugs
)

func TestSeededBugs(t *testing.T) {
	for _, b := range bugs.All() {
		if !slices.Contains(elsewhere, b) && !slices.ContainsFunc(seeded, func(s seededBug) bool { return s.bug == b }) {
			t.Errorf("%v: nobody says which rule it breaks", b)
		}
	}
	for _, rule := range judged {
		if !slices.ContainsFunc(seeded, func(s seededBug) bool { return s.rule == rule }) {
			t.Errorf("no bug breaks the rule %q", rule)
		}
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "bug\tseeds\ttime\tthe rule that caught it")
	for _, s := range seeded {
		t.Run(s.bug.String(), func(t *testing.T) {
			defer bugs.Turn(bugs.None)
			began := time.Now()
			bugs.Turn(s.bug)
			run := hunt(t)
			bugs.Turn(bugs.None)
			took := time.Since(began).Round(100 * time.Millisecond)
			if run == nil {
				t.Errorf("%d runs show nothing", mostSeeds)
				fmt.Fprintf(table, "%v\t> %d\t%v\tNONE\n", s.bug, mostSeeds, took)
				return
			}
			found := run.violations[0]
			fmt.Fprintf(table, "%v\t%d\t%v\t%s\n", s.bug, run.seed, took, found.Rule)
			if found.Rule != s.rule {
				t.Errorf("it breaks the rule %q and was found by seed %d as %v\n%s\nSIMBA_BUG=%v go test -tags bugs ./tests/simulation -run TestSimulation -seed %d",
					s.rule, run.seed, found, run.tail(30), s.bug, run.seed)
			}
			mustShowNothing(t, run.seed)
		})
	}
	table.Flush()
	t.Logf("\n%s", text.String())
}

// hunt runs one seed after the other until one shows something. If none does it returns nil.
func hunt(t *testing.T) *report {
	for seed := uint64(1); seed <= mostSeeds; seed++ {
		if run := simulate(t, seed); len(run.violations) > 0 {
			return run
		}
	}
	return nil
}

func TestWithoutABugTheFirstSeedsShowNothing(t *testing.T) {
	for seed := uint64(1); seed <= controlSeeds; seed++ {
		mustShowNothing(t, seed)
	}
}

// mustShowNothing runs a seed without a bug: else what is found would not be the bug's.
func mustShowNothing(t *testing.T, seed uint64) {
	t.Helper()
	if run := simulate(t, seed); len(run.violations) > 0 {
		t.Errorf("without a bug: %v", run)
	}
}
