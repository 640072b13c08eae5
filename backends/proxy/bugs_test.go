package proxy

import (
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

// seeded maps each seeded bug of the core to the test that must catch it.
var seeded = map[string]string{
	"store-change-during-read-lost":             "TestChangeDuringAReadIsNotLost",
	"store-double-grant":                        "TestOwnerThatAsksAgainKeepsItsTenure",
	"store-end-after-next-begin":                "TestHistoryHasUnseenEndsInOrder",
	"store-end-while-renewal-commits":           "TestEndIsNotReportedWhileARenewalCommits",
	"store-failed-read-not-repeated":            "TestFailedReadIsRepeatedSoon",
	"store-gone-waiter-keeps-grant":             "TestEngineSimulation",
	"store-last-come-first-served":              "TestBlockedWaitersAreServedInOrder",
	"store-locked-mutexes-take-all-connections": "TestLockedMutexesUseFewConnections",
	"store-lost-wake-up":                        "TestEngineSimulation",
	"store-old-windows-for-new-request":         "TestWaiterHasTheLeaseOfItsOtherRequest",
	"store-orphan-forgotten-early":              "TestEngineSimulation",
	"store-orphan-stays":                        "TestEngineSimulation",
	"store-polling-waiter-passed-over":          "TestReservationOfAPollingWaiterEnds",
	"store-refusal-ignored":                     "TestRefusedStoreBeginsNoTenure",
	"store-release-without-token-check":         "TestTokenProtectsLaterTenures",
	"store-renewal-behind-lost-step":            "TestOwnersRenewalWaitsForNoOtherStep",
	"store-reservation-never-ends":              "TestReservationOfAPollingWaiterEnds",
	"store-session-keeps-lease":                 "TestSessionEndsALeaseOfUnknownOutcome",
	"store-session-leak":                        "TestSessionOfAnExpiredLeaseIsForgotten",
	"store-windows-from-reply":                  "TestEngineSimulation",
}

func TestSeededBugsOfTheCoreAreCaught(t *testing.T) {
	bugs.SkipUnlessWanted(t)
	for bug, test := range seeded {
		t.Run(bug, func(t *testing.T) {
			out, err := bugs.Go(t, bug, "test", "-count", "1", "-vet", "off", "-run", "^"+test+"$", "./backends/proxy", "-seeds", "2000")
			if err == nil || !strings.Contains(out, "--- FAIL: "+test) {
				t.Errorf("go test ends with %v, want a failure of %s:\n%s", err, test, out)
			}
		})
	}
}

func TestEachBugOfTheCoreHasATest(t *testing.T) {
	for _, bug := range bugs.Names(t) {
		if strings.HasPrefix(bug, "store-") && seeded[bug] == "" {
			t.Errorf("the table seeded has no test for the bug %s", bug)
		}
	}
}
