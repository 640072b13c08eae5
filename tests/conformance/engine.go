package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// Backend is an engine with the methods that the suite calls.
type Backend interface {
	simba.Backend
	SetHandoffWindow(time.Duration)
	SetQueueGrace(time.Duration)
	// Close closes the server without ending its clients' waits, as a crash does.
	Close() error
}

// Engine describes the engine under test.
type Engine struct {
	// Name is the engine's name, such as "redis". A dash and the name of a set-up may follow:
	// "redis-cluster".
	Name string
	// Promises is the folder of the engine's PromisesFile; "" = the folder of the test.
	Promises string
	// Open starts one more server on the same store. The suite closes the server.
	Open Opener
	// Link is the network between the store and the servers that Open starts; nil = Run skips the
	// rules of outages.
	Link *stores.Link
	// Direct opens a server that does not use Link, so that a fault of Link cuts off only some
	// servers. nil = Run skips the rules that need Direct.
	Direct Opener
	// Harm changes the store of a mutex, as an operator may by mistake, so that the store refuses
	// requests of the engine. mend reverts the change. nil = Run skips the rules that need Harm.
	Harm func(t testing.TB, mutex string) (mend func())
	// Shared says that several servers can share the store.
	Shared bool
	// PollLatency is how late a waiter may notice another server's change, or the end of a lease; 0
	// = immediately.
	PollLatency time.Duration
	// Timeout is the servers' timeout in the rules of outages; 0 = 3 s. Other rules use a long
	// timeout, so that no request fails because the machine is busy.
	Timeout time.Duration
}

// Opener starts a server whose Options.Timeout is timeout.
type Opener func(t testing.TB, n simba.Notices, timeout time.Duration) Backend

// rule is one subtest.
type rule struct {
	promise string // the ID of the Promise that the rule proves
	name    string
	needs   needs
	run     func(tc *testCase)
}

type needs uint8

const (
	shared needs = 1 << iota // several servers on one store
	link                     // a network that can fail
	direct                   // Engine.Direct
	harm                     // Engine.Harm
)

// Run runs every rule as a subtest of t, one after another.
func Run(t *testing.T, e Engine) {
	t.Helper()
	if e.Timeout == 0 {
		e.Timeout = 3 * time.Second
	}
	keeps := keepings(t, e.Promises)
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			switch p := keeps[promiseOf(t, r.promise).ID]; p.state {
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
				t.Skip("the test has no Engine.Link to the store")
			case r.needs&direct != 0 && e.Direct == nil:
				t.Skip("the test has no Engine.Direct, a way to the store without the Link")
			case r.needs&harm != 0 && e.Harm == nil:
				t.Skip("the test cannot harm the store")
			}
			e := e
			if r.needs&link == 0 {
				e.Timeout = longTimeout
			}
			r.run(newTestCase(t, e))
		})
	}
}

// rules returns all rules in the order in which they run.
func rules() []rule {
	return slices.Concat(
		leaseRules(), tokenRules(), requestRules(), handoffRules(), deadWaiterRules(), pollingRules(),
		noticeRules(), listingRules(), lifeRules(), sharedRules(), sharedQueueRules(), sharedNoticeRules(),
		hammerRules(), outageRules(), lostReplyRules(), cutOffRules(), refusedRules(),
	)
}
