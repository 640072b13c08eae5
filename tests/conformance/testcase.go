package conformance

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/leaks"
	"github.com/simba-resp/simba-resp/tests/need"
)

const (
	ms  = time.Millisecond
	sec = time.Second

	// long is a lease that never ends during a test, even on a slow machine.
	long = 2 * need.Hang
	// renewable is a lease that each server can renew although another server granted it.
	renewable = 15 * sec
	// patience is how long the suite waits for an event that must happen.
	patience = need.Hang
	// rounding is how far the readings of two clocks of one machine may differ, if one of the
	// clocks shows whole milliseconds only.
	rounding = 3 * ms

	// longTimeout is the timeout of requests to the store, on servers whose way to the store no
	// test cuts.
	longTimeout = time.Minute

	testWindow = sec
	testGrace  = 5 * sec
)

// testCase is one subtest. It has servers on one store, and names that no other test uses.
type testCase struct {
	t       *testing.T
	engine  Engine
	servers []*server
	prefix  string
	names   int
}

// storeRuns is the function of the goroutine that waits for a store's process. A restart of the
// process starts a new goroutine.
const storeRuns = "github.com/simba-resp/simba-resp/tests/conformance/stores.run.func1"

const linkAccepts = "github.com/simba-resp/simba-resp/tests/conformance/stores.(*Link).accept"

var testCases atomic.Int64

// runID makes names different from those of earlier processes on the same store.
var runID = strings.ToLower(rand.Text()[:6])

func newTestCase(t *testing.T, e Engine) *testCase {
	tc := &testCase{t: t, engine: e, prefix: fmt.Sprintf("%s-%d", runID, testCases.Add(1))}
	already := goleak.IgnoreCurrent()
	connected := func() (n int) {
		if e.Link != nil {
			n = e.Link.Connections()
		}
		return n
	}
	before := connected()
	t.Cleanup(func() {
		if e.Link != nil {
			e.Link.Heal()
		}
		for _, s := range tc.servers {
			s.end()
		}
		if !t.Failed() {
			tc.await("the store has closed the connections", func() bool { return connected() <= before })
			// If the test called Refuse, Heal has started a new goroutine of the link.
			if err := leaks.Find(already, goleak.IgnoreAnyFunction(linkAccepts), goleak.IgnoreAnyFunction(storeRuns)); err != nil {
				t.Error(err)
			}
		}
	})
	return tc
}

func (tc *testCase) mutex() string {
	tc.names++
	return fmt.Sprintf("m-%s-%d", tc.prefix, tc.names)
}

func (tc *testCase) server() *server {
	tc.t.Helper()
	return tc.open(tc.engine.Open, tc.engine.Timeout)
}

// directServer opens a server that does not use the link, so the store always answers its requests.
func (tc *testCase) directServer() *server {
	tc.t.Helper()
	return tc.open(tc.engine.Direct, longTimeout)
}

// held returns a server, and a mutex that a owns for long.
func (tc *testCase) held() (s *server, m string) {
	tc.t.Helper()
	s, m = tc.server(), tc.mutex()
	s.mustAcquire(m, "a", long, 0)
	return s, m
}

// polled is held with a handoff window. Contender b polls for the mutex.
func (tc *testCase) polled(window time.Duration) (s *server, m string) {
	tc.t.Helper()
	s, m = tc.held()
	s.b.SetHandoffWindow(window)
	s.poll(m, "b", sec)
	return s, m
}

// watched is held with a subscription to the channel of the mutex.
func (tc *testCase) watched() (s *server, m string) {
	tc.t.Helper()
	s, m = tc.server(), tc.mutex()
	s.subscribe(simba.MutexChannel(m))
	s.mustAcquire(m, "a", long, 0)
	return s, m
}

// pair returns two servers, and a mutex that nobody owns.
func (tc *testCase) pair() (one, two *server, m string) {
	tc.t.Helper()
	return tc.server(), tc.server(), tc.mutex()
}

func (tc *testCase) await(what string, is func() bool) {
	tc.t.Helper()
	need.Await(tc.t, what, is)
}

func (tc *testCase) patience() time.Duration { return patience + tc.engine.PollLatency }

// during fails the test if a condition does not stay true for a while.
func (tc *testCase) during(d time.Duration, what string, check func() bool) {
	tc.t.Helper()
	end := time.NewTimer(d)
	defer end.Stop()
	again := time.NewTicker(10 * ms)
	defer again.Stop()
	for {
		if !check() {
			tc.t.Fatalf("no longer true: %s", what)
		}
		select {
		case <-end.C:
			return
		case <-again.C:
		}
	}
}

func pause(d time.Duration) { <-time.After(d) }

func (tc *testCase) equal(what string, got, want []string) {
	tc.t.Helper()
	if !slices.Equal(got, want) {
		tc.t.Errorf("%s: %q, want %q", what, got, want)
	}
}
