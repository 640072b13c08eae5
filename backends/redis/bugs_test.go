package redis

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/bugs"
)

// Without a bug, each of these tests takes up to 5 s.
func TestSeededBugsOfRedisAreCaught(t *testing.T) {
	bugs.TestsCatch(t, "redis-", "./backends/redis", 20*time.Second, map[string]string{
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
	})
}
