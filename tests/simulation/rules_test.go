package simulation

import (
	"fmt"
	"strings"
)

// The rules that a run can break: those of the design's section 4, and what follows from them for
// a server as a whole.
const (
	ruleOneOwner    = "one owner"                   // 1: no tenures overlap; nothing cuts a lease but its owner, its session or BREAK
	ruleWindows     = "windows"                     // 2: acquired_at, ttl_at and transition_at are what was asked for
	ruleGuard       = "guard never revives"         // 3: GUARD begins no tenure; a renewal sets both windows anew
	ruleTokens      = "tokens"                      // 4: one a tenure, larger than all before; TOKEN n acts on that tenure only
	ruleDurable     = "durable before told"         // 5: no crash undoes what anyone was told, nor grants beside what was lost
	ruleDeadWaiter  = "no grant to the dead"        // 6: a lease counts from its grant; a waiter that is gone is skipped in the same step
	ruleOrder       = "first come first served"     // 7: among reachable waiters
	ruleWakeup      = "no lost wake-up"             // 8: a free mutex has no reachable waiter that was not told, at that very instant
	ruleNothingLeft = "nothing left"                // 9: no owner, entry, memory or goroutine remains when all have gone
	ruleClock       = "clock steps and restarts"    // 10: neither extends nor cuts a lease
	ruleNotices     = "notices"                     // what is told on the channels, and the history, is what happened
	ruleFatal       = "a failing disk ends the run" // within 1 s, or after the patience with one that hangs
	ruleLiveness    = "liveness"                    // every request is answered, every mutex can be had at the end
	ruleReplies     = "replies"                     // a reply that no rule above speaks of is not what it should be
)

// violation is a rule that a run has broken.
type violation struct {
	Rule string // one of the constants above
	What string // what happened, with its virtual instant
}

func (v violation) String() string { return v.Rule + ": " + v.What }

// report is what a run has seen.
type report struct {
	seed       uint64
	config     string
	violations []violation
	log        []string       // the events, in order; the same for the same seed
	counts     map[string]int // operations and faults by kind: "acquire wait", "crash", …
}

// tail is the end of the log.
func (r *report) tail(lines int) string {
	return strings.Join(r.log[max(0, len(r.log)-lines):], "\n")
}

func (r *report) String() string {
	var b strings.Builder
	for _, v := range r.violations {
		fmt.Fprintln(&b, "  ", v)
	}
	return fmt.Sprintf("seed %d (%s):\n%s", r.seed, r.config, b.String())
}
