package zookeeper

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

// Without a bug, each of these tests takes up to 10 s.
func TestSeededBugsOfZooKeeperAreCaught(t *testing.T) {
	bugs.TestsCatch(t, "zookeeper-", "./backends/zookeeper", 20*time.Second, map[string]string{
		"zookeeper-answer-apart-from-change":                   "TestChangeThatArrivesAfterTheWithdrawalIsNotMade",
		"zookeeper-answer-before-withdrawal-ignored":           "TestAnswerThatComesBeforeTheWithdrawalIsTheReply",
		"zookeeper-blocked-waiter-elsewhere-is-no-owner":       "TestConformance/a_waiter_on_one_server_is_granted_a_mutex_that_the_other_releases",
		"zookeeper-bound-lease-mark-ignored":                   "TestSessionBoundElsewhereEndsOnlyItsOwnLease",
		"zookeeper-bound-lease-mark-ignored-elsewhere":         "TestSessionBoundElsewhereEndsOnlyItsOwnLease",
		"zookeeper-deleted-request-taken-for-withdrawn":        "TestRenewalWhoseAnswerWasReadIsCounted",
		"zookeeper-end-before-session-end":                     "TestEndIsPublishedAfterTheEndOfTheSession",
		"zookeeper-ended-wait-keeps-node":                      "TestConformance/a_timeout_leaves_the_queue",
		"zookeeper-entry-elsewhere-stays":                      "TestWaitEndsWhenItsContenderWaitsAtAnotherServer",
		"zookeeper-entry-is-settled-once":                      "TestWaitThatEndsInAnOutageLeavesNoNode",
		"zookeeper-expired-lease-keeps-node":                   "TestConformance/a_waiter_on_one_server_is_granted_a_mutex_that_expires_on_the_other",
		"zookeeper-failed-acquire-keeps-node":                  "TestUnansweredAcquireOfATakenMutexBeginsNothing",
		"zookeeper-first-node-taken-back":                      "TestFirstNodeIsNeverTakenBack",
		"zookeeper-first-node-taken-back-for-another-server":   "TestFirstNodeIsNotTakenBackForAnotherServer",
		"zookeeper-granted-windows-unwritten":                  "TestLeaseOfAGrantedWaiterRunsElsewhere",
		"zookeeper-late-grant-ends-the-entry":                  "TestWaiterWhoseGrantIsConfirmedTooLateGetsTheMutex",
		"zookeeper-guard-without-write":                        "TestUnansweredRenewalIsCounted",
		"zookeeper-later-waiter-is-granted-when-it-asks-again": "TestConformance/the_second_connection_of_a_waiter_takes_over_its_queue_entry",
		"zookeeper-listener-elsewhere-unknown":                 "TestSubscriberElsewhereGetsTheReservation",
		"zookeeper-long-lease-after-a-lost-session":            "TestWaiterGetsNoLeaseThatTheNextSessionCannotVouchFor",
		"zookeeper-long-lease-of-a-waiter-elsewhere":           "TestWaiterWithALongLeaseMovesUnlessItsNodeIsTheFirst",
		"zookeeper-lost-entry-without-notice":                  "TestPollingWaitersGetANoticeAfterALostSession",
		"zookeeper-moved-wait-goes-on":                         "TestWaitEndsWhenItsContenderWaitsAtAnotherServer",
		"zookeeper-older-renewal-shortens":                     "TestOlderRenewalShortensNoLease",
		"zookeeper-ordered-by-contender":                       "TestConformance/first_come,_first_served",
		"zookeeper-release-without-token-check":                "TestConformance/GUARD_and_RELEASE_with_a_token_act_only_on_that_tenure",
		"zookeeper-renewal-elsewhere-unbinds":                  "TestSessionEndsItsLeaseAfterARenewalElsewhere",
		"zookeeper-renewal-elsewhere-not-read":                 "TestReleaseOfARenewedTenureElsewhereIsAnnounced",
		"zookeeper-reservation-elsewhere-ignored":              "TestConformance/a_polling_waiter_is_notified_of_a_release_elsewhere,_and_the_mutex_is_reserved_on_all_servers",
		"zookeeper-second-node-of-a-contender":                 "TestSessionBoundElsewhereEndsOnlyItsOwnLease",
		"zookeeper-session-given-up-late":                      "TestOwnerLosesItsLeaseBeforeAnotherGetsTheMutex",
		"zookeeper-stopping-mark-missed":                       "TestServerThatBeginsToStopIsNotAsked",
		"zookeeper-stopping-mark-undone":                       "TestMarkOfAStoppingServerStays",
		"zookeeper-stopping-server-keeps-waiters":              "TestStoppedServersTenuresEndByRequests",
		"zookeeper-token-from-lease-node":                      "TestConformance/an_owner_may_ask_through_any_server",
		"zookeeper-unanswered-request-stays":                   "TestWithdrawnRequestIsNeverExecuted",
		"zookeeper-unconfirmed-queue-entry-is-an-owner":        "TestOwnerWhoseQueueEntryWasUnconfirmedIsTheOwnerElsewhere",
		"zookeeper-unwatched-mutex-stays":                      "TestDeletedMutexIsNotWatched",
		"zookeeper-waiter-not-requeued":                        "TestWaitersSurviveALostSessionInOrder",
		"zookeeper-windows-from-late-write":                    "TestLateRenewalIsReportedFromWhenItWasSent",
	})
}
