package simulation

import (
	"fmt"
	"strings"
)

// The rules that a run can break. Numbers are those of the promises in package conformance. Rules
// without a number are about whole servers.
const (
	// 1: tenures never overlap; only the owner, the end of its session, or BREAK ends a lease early
	ruleOneOwner = "one owner"
	// 2: acquired_at, ttl_at and transition_at are as requested
	ruleWindows = "windows"
	// 3: GUARD only renews and never begins a tenure; a renewal sets both windows anew
	ruleGuard = "guard never revives"
	// 4: one token a tenure, larger than all before; a request with TOKEN n acts on that tenure
	// only
	ruleTokens = "tokens"
	// 5: no crash undoes a reported change; in async, no new grant while a lost lease may run
	ruleDurable = "durable before reported"
	// 6: a lease begins at its grant; a handoff skips waiters that have disconnected
	ruleDeadWaiter = "no grant to disconnected waiters"
	// 7: reachable waiters get the mutex in the order of their arrival
	ruleOrder = "first come first served"
	// 8: a free mutex is granted or offered to its first reachable waiter at once
	ruleWakeup = "no lost wake-up"
	// 9: when all clients have left, no owner, queue entry, memory or goroutine remains
	ruleNothingLeft = "nothing left"
	// 10: a set wall clock or a restart neither extends nor shortens a lease
	ruleClock = "clock steps and restarts"
	// messages on channels, and the history, report exactly the changes
	ruleNotices = "notices"
	// after a disk fault the process ends within 1 s; on a hanging disk, after the store's timeout
	ruleFatal = "a failing disk ends the run"
	// every request gets a reply, and at the end every mutex can be acquired
	ruleLiveness = "liveness"
	// all other contents of replies are right
	ruleReplies = "replies"
)

type violation struct {
	Rule string // one of the constants above
	What string // what happened, and when it happened in fake time
}

func (v violation) String() string { return v.Rule + ": " + v.What }

type report struct {
	seed       uint64
	config     string
	violations []violation
	log        []string       // always the same for a seed
	counts     map[string]int // operations and faults by kind: "acquire wait", "crash", …
}

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
