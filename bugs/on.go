//go:build bugs

package bugs

import (
	"fmt"
	"os"
	"sync/atomic"
)

var names = [...]string{
	None:                     "none",
	ReplyBeforeFsync:         "reply-before-fsync",
	FsyncSkipped:             "fsync-skipped",
	NoticeBeforeDurable:      "notice-before-durable",
	FreeBeforeDurable:        "free-before-durable",
	TokenReset:               "token-reset",
	DoubleGrantOnRetry:       "double-grant-on-retry",
	ReleaseWithoutTokenCheck: "release-without-token-check",
	GuardRevives:             "guard-revives",
	RenewalKeepsWindows:      "renewal-keeps-windows",
	FirstWindowsStay:         "first-windows-stay",
	EarlyExpiry:              "early-expiry",
	LateExpiry:               "late-expiry",
	ClockStepHonoured:        "clock-step-honoured",
	RestartCutsLeases:        "restart-cuts-leases",
	GrantInQuietTime:         "grant-in-quiet-time",
	LostWakeUp:               "lost-wake-up",
	ReservationNeverEnds:     "reservation-never-ends",
	LastComeFirstServed:      "last-come-first-served",
	GrantToTheDead:           "grant-to-the-dead",
	DeadKeepsGrant:           "dead-keeps-grant",
	QueueLeak:                "queue-leak",
	SessionKeepsLease:        "session-keeps-lease",
	TurnNamesTheNext:         "turn-names-the-next",
	FaultNotFatal:            "fault-not-fatal",
	OldWaitForgotten:         "old-wait-forgotten",
	UntoldForgotten:          "untold-forgotten",
	SegmentReleasedEarly:     "segment-released-early",
	TornRecordAccepted:       "torn-record-accepted",
	ReplayOutOfOrder:         "replay-out-of-order",
	LostUpdate:               "lost-update",
}

func (b Bug) String() string { return names[b] }

// All returns every bug, None apart.
func All() []Bug {
	all := make([]Bug, 0, len(names)-1)
	for b := None + 1; int(b) < len(names); b++ {
		all = append(all, b)
	}
	return all
}

// on is the bug that is turned on; there is only one at a time, for the whole process.
var on atomic.Uint32

// On reports whether the server is to have the bug now.
func On(b Bug) bool { return on.Load() == uint32(b) }

// Turn turns the bug on, and every other off. Servers that run may meet it at once.
func Turn(b Bug) { on.Store(uint32(b)) }

// variable names the bug that is on from the start, for tests that know of none.
const variable = "SIMBA_BUG"

func init() {
	name, given := os.LookupEnv(variable)
	if !given {
		return
	}
	for b, n := range names {
		if n == name {
			Turn(Bug(b))
			return
		}
	}
	panic(fmt.Sprintf("%s: there is no bug %q", variable, name))
}
