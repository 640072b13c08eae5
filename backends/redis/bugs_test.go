package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

// seeded maps each seeded bug of this engine to the test that must catch it.
var seeded = map[string]string{
	"redis-dead-server-keeps-grant":     "TestWaitersOfDeadServerAreRemovedTogether",
	"redis-deadline-by-own-clock":       "TestDeadlineAtNodeIsNotLaterThanDeadline",
	"redis-demoted-primary-answers":     "TestReadIsAnsweredByWritableNode/CHECK_of_the_old_token",
	"redis-ended-wait-keeps-entry":      "TestWaitThatEndedWithoutTheMutexGetsNoGrant",
	"redis-fast-release-unmarked":       "TestUnreceivedTenureEndsTheWaitUnlessItExpired",
	"redis-late-request-runs":           "TestAbandonedRequestDoesNothingLater",
	"redis-lock-outlives-lease":         "TestDelayedGrantDoesNotProlongTheLock",
	"redis-no-read-after-resubscribe":   "TestWaitersAreQueuedAgainWhenTheirServerIsReachable",
	"redis-orphan-keeps-grant":          "TestGrantToUnknownTicketIsHandedOff",
	"redis-place-lost":                  "TestReleaseThatDeletesTheQueueKeepsTheOrder",
	"redis-release-without-token-check": "TestSingleRedisKeepsTheRules/GUARD_and_RELEASE_with_a_token_act_only_on_that_tenure",
	"redis-reservation-never-ends":      "TestSingleRedisKeepsTheRules/a_missed_reservation_goes_to_the_next_waiter",
	"redis-token-from-clock-only":       "TestFastPathsWriteAndPublishWhatTheStepsWould",
	"redis-windows-from-reply":          "TestSingleRedisKeepsTheRules/over_a_slow_network_no_reply_overstates_the_rest_of_a_lease",
}

// atMost is how long one of these tests may run. Without a bug it takes up to 5 s. Some bugs prevent
// an event for which the test waits.
const atMost = 20 * time.Second

func TestSeededBugsOfRedisAreCaught(t *testing.T) {
	bugs.SkipUnlessWanted(t)
	for bug, test := range seeded {
		t.Run(bug, func(t *testing.T) {
			pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
			out, err := bugs.Go(t, bug, "test", "-count", "1", "-vet", "off", "-run", pattern, "-timeout", atMost.String(), "./backends/redis")
			waits := strings.Contains(out, "test timed out") && strings.Contains(out, "\t"+test+" (")
			if err == nil || !waits && !strings.Contains(out, "--- FAIL: "+test) {
				t.Errorf("go test ends with %v, want a failure of %s:\n%s", err, test, out)
			}
		})
	}
}

func TestEachBugOfRedisHasATest(t *testing.T) {
	for _, bug := range bugs.Names(t) {
		if strings.HasPrefix(bug, "redis-") && seeded[bug] == "" {
			t.Errorf("the table seeded has no test for the bug %s", bug)
		}
	}
}
