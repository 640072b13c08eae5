package simulation

import (
	"fmt"
	"strings"
)

// The rules that a run can break. The numbers are those of the promises in package backendtest. The
// rest follows from them for a whole server.
const (
	// 1: tenures never overlap; only the owner, its session or BREAK cuts a lease
	ruleOneOwner = "one owner"
	// 2: acquired_at, ttl_at and transition_at are as requested
	ruleWindows = "windows"
	// 3: GUARD begins no tenure; a renewal sets both windows anew
	ruleGuard = "guard never revives"
	// 4: one a tenure, larger than all before; TOKEN n acts on that tenure only
	ruleTokens = "tokens"
	// 5: no crash undoes a reported change, or grants beside a lost lease
	ruleDurable = "durable before reported"
	// 6: a lease counts from its grant; a disconnected waiter is skipped at once
	ruleDeadWaiter = "no grant to disconnected waiters"
	// 7: among reachable waiters
	ruleOrder = "first come first served"
	// 8: a free mutex is granted or offered to its first reachable waiter at once
	ruleWakeup = "no lost wake-up"
	// 9: no owner, entry, memory or goroutine remains when all clients left
	ruleNothingLeft = "nothing left"
	// 10: neither extends nor cuts a lease
	ruleClock = "clock steps and restarts"
	// messages on channels, and the history, report what happened
	ruleNotices = "notices"
	// within 1 s, or when the store's timeout for a hanging disk is over
	ruleFatal = "a failing disk ends the run"
	// every request gets a reply, every mutex can be acquired at the end
	ruleLiveness = "liveness"
	// a reply that no rule above covers is wrong
	ruleReplies = "replies"
)

// violation is a rule that a run has broken.
type violation struct {
	Rule string // one of the constants above
	What string // what happened, with its virtual instant
}

func (v violation) String() string { return v.Rule + ": " + v.What }

// report is the result of a run.
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
