package zookeeper

import (
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

// seeded maps each seeded bug of this engine to the test that must catch it.
var seeded = map[string]string{
	"zookeeper-answer-apart-from-change":                "TestChangeThatArrivesAfterTheWithdrawalIsNotMade",
	"zookeeper-deleted-request-taken-for-withdrawn":     "TestRenewalWhoseAnswerWasReadIsCounted",
	"zookeeper-end-before-session-end":                  "TestEndIsPublishedAfterTheEndOfTheSession",
	"zookeeper-ended-wait-keeps-node":                   "TestConformance/a_timeout_leaves_the_queue",
	"zookeeper-failed-acquire-keeps-node":               "TestUnansweredAcquireOfATakenMutexBeginsNothing",
	"zookeeper-first-node-taken-back":                   "TestFirstNodeIsNeverTakenBack",
	"zookeeper-guard-without-write":                     "TestUnansweredRenewalIsCounted",
	"zookeeper-release-without-token-check":             "TestConformance/GUARD_and_RELEASE_with_a_token_act_only_on_that_tenure",
	"zookeeper-second-node-of-a-contender":              "TestSessionBoundElsewhereEndsOnlyItsOwnLease",
	"zookeeper-session-given-up-late":                   "TestOwnerLosesItsLeaseBeforeAnotherGetsTheMutex",
	"zookeeper-stopped-tenure-ends-without-token-check": "TestStoppedServersTenureEndsOnlyWithItsToken",
	"zookeeper-stopping-mark-missed":                    "TestServerThatBeginsToStopIsNotAsked",
	"zookeeper-token-from-lease-node":                   "TestConformance/an_owner_may_ask_through_any_server",
	"zookeeper-unanswered-request-stays":                "TestWithdrawnRequestIsNeverExecuted",
	"zookeeper-unconfirmed-queue-entry-is-an-owner":     "TestOwnerWhoseQueueEntryWasUnconfirmedIsTheOwnerElsewhere",
	"zookeeper-undecided-entry-passed-over":             "TestWaiterBehindANodeInCreationIsNotGrantedTheMutex",
	"zookeeper-waiter-not-requeued":                     "TestWaitersSurviveALostSessionInOrder",
	"zookeeper-windows-from-late-write":                 "TestLateRenewalIsReportedFromWhenItWasSent",
}

// atMost is how long one of these tests may run. Without a bug it takes up to 10 s. Some bugs prevent
// an event for which the test waits.
const atMost = 20 * time.Second

func TestSeededBugsOfZooKeeperAreCaught(t *testing.T) {
	bugs.SkipUnlessWanted(t)
	for bug, test := range seeded {
		t.Run(bug, func(t *testing.T) {
			pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
			out, err := bugs.Go(t, bug, "test", "-count", "1", "-vet", "off", "-run", pattern, "-timeout", atMost.String(), "./backends/zookeeper")
			waits := strings.Contains(out, "test timed out") && strings.Contains(out, "\t"+test+" (")
			if err == nil || !waits && !strings.Contains(out, "--- FAIL: "+test) {
				t.Errorf("go test ends with %v, want a failure of %s:\n%s", err, test, out)
			}
		})
	}
}

func TestEachBugOfZooKeeperHasATest(t *testing.T) {
	for _, bug := range bugs.Names(t) {
		if strings.HasPrefix(bug, "zookeeper-") && seeded[bug] == "" {
			t.Errorf("the table seeded has no test for the bug %s", bug)
		}
	}
}
