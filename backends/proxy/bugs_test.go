package proxy

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

// seeded maps each seeded bug of the core to the test that must catch it.
var seeded = map[string]string{
	"store-change-during-read-lost":             "TestChangeDuringAReadIsNotLost",
	"store-double-grant":                        "TestEngineConformance/announced/every_request_may_be_repeated",
	"store-end-after-next-begin":                "TestHistoryHasUnseenEndsInOrder",
	"store-end-while-renewal-commits":           "TestEndIsNotReportedWhileARenewalCommits",
	"store-failed-read-not-repeated":            "TestFailedReadIsRepeatedSoon",
	"store-gone-waiter-keeps-grant":             "TestEngineSimulation",
	"store-last-come-first-served":              "TestBlockedWaitersAreServedInOrder",
	"store-locked-mutexes-take-all-connections": "TestLockedMutexesUseFewConnections",
	"store-lost-wake-up":                        "TestEngineSimulation",
	"store-next-owner-unseen":                   "TestReadsFindAWaiterThatOtherServersSeeAsTheOwner",
	"store-old-windows-for-new-request":         "TestWaiterHasTheLeaseOfItsOtherRequest",
	"store-orphan-forgotten-early":              "TestEngineSimulation",
	"store-orphan-stays":                        "TestEngineSimulation",
	"store-polling-waiter-passed-over":          "TestReservationOfAPollingWaiterEnds",
	"store-refusal-ignored":                     "TestRefusedStoreBeginsNoTenure",
	"store-release-without-token-check":         "TestEngineConformance/announced/GUARD_and_RELEASE_with_a_token_act_only_on_that_tenure",
	"store-renewal-behind-lost-step":            "TestOwnersRenewalWaitsForNoOtherStep",
	"store-reservation-never-ends":              "TestReservationOfAPollingWaiterEnds",
	"store-session-keeps-lease":                 "TestSessionEndsALeaseOfUnknownOutcome",
	"store-session-leak":                        "TestSessionOfAnExpiredLeaseIsForgotten",
	"store-windows-from-reply":                  "TestEngineSimulation",
}

func TestSeededBugsOfTheCoreAreCaught(t *testing.T) {
	bugs.TestsCatch(t, "store-", "./backends/proxy", 10*time.Minute, seeded, "-seeds", "2000")
}
