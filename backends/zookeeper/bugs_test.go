package zookeeper

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

// Without a bug, each of these tests takes up to 10 s.
func TestSeededBugsOfZooKeeperAreCaught(t *testing.T) {
	bugs.TestsCatch(t, "zookeeper-", "./backends/zookeeper", 20*time.Second, map[string]string{
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
	})
}
