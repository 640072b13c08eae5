package backendtest

import (
	"slices"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// Backend is an engine as the suite opens, sets and closes it.
type Backend interface {
	simba.Backend
	SetHandoffWindow(time.Duration)
	SetQueueGrace(time.Duration)
	// Close ends the server without ending the waits of its clients, as a crash does.
	Close() error
}

// Engine is what the suite needs to know of the engine that it tests.
type Engine struct {
	// Name is the engine's, "redis", with a word for the set-up after a dash if there
	// is more than one: "redis-cluster". The part before the dash chooses the column
	// of Promises.
	Name string
	// Open starts one more server on the same store. The suite closes it.
	Open Opener
	// Link stands between the servers that Open starts and the store; nil = the rules
	// of outages are not tested.
	Link *stores.Link
	// Direct is Open for a server whose way to the store is not by Link; nil = the
	// rules that need one server cut off and another not are not tested.
	Direct Opener
	// Harm changes the store of a mutex as an operator may by mistake, so that it refuses
	// what the engine needs, and mend takes that back; nil = the rules of that are not
	// tested.
	Harm func(t testing.TB, mutex string) (mend func())
	// Shared says that several servers can share the store.
	Shared bool
	// PollLatency is how late a waiter may learn what another server did, or that a
	// lease has ended; 0 = at once.
	PollLatency time.Duration
	// Timeout is the deadline of the servers in the rules of outages; 0 = 3 s. In the others, where
	// the store does answer, it is long: a busy machine must not fail them.
	Timeout time.Duration
}

// Opener starts a server that gives its store so long to answer (Options.Timeout).
type Opener func(t testing.TB, n simba.Notices, timeout time.Duration) Backend

// rule is one subtest.
type rule struct {
	promise string // the line of Promises that it proves
	name    string
	needs   needs
	run     func(tc *testCase)
}

type needs uint8

const (
	shared needs = 1 << iota // several servers on one store
	link                     // a network that can fail
	direct                   // a server that it does not cut off
	harm                     // a store that can be made to refuse
)

// Run tests every rule as a subtest of t, one after another.
func Run(t *testing.T, e Engine) {
	t.Helper()
	if e.Timeout == 0 {
		e.Timeout = 3 * time.Second
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			switch p := promiseOf(t, r.promise).of(e.Name); p.state {
			case notKept:
				t.Skipf("not kept by %s: %s", e.Name, p.text)
			case notApplicable:
				t.Skip(p.text)
			case keptIf:
				t.Logf("kept if %s", p.text)
			}
			switch {
			case r.needs&shared != 0 && !e.Shared:
				t.Skip("the engine does not share its store")
			case r.needs&link != 0 && e.Link == nil:
				t.Skip("no network between the engine and its store")
			case r.needs&direct != 0 && e.Direct == nil:
				t.Skip("no second way to the store")
			case r.needs&harm != 0 && e.Harm == nil:
				t.Skip("nobody knows how to harm the store")
			}
			e := e
			if r.needs&link == 0 {
				e.Timeout = longTimeout
			}
			r.run(newTestCase(t, e))
		})
	}
}

// rules are all of them, in the order in which they run.
func rules() []rule {
	return slices.Concat(
		leaseRules(), tokenRules(), requestRules(), handoffRules(), deadWaiterRules(), pollingRules(),
		noticeRules(), listingRules(), lifeRules(), sharedRules(), sharedQueueRules(), sharedNoticeRules(),
		hammerRules(), outageRules(), lostReplyRules(), cutOffRules(), refusedRules(),
	)
}
