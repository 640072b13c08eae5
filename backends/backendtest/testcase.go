package backendtest

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	ms  = time.Millisecond
	sec = time.Second

	// long is a lease that does not end during a test, however slow the machine is.
	long = 10 * time.Minute
	// patience is how long the suite waits for what must happen.
	patience = 20 * sec
	// rounding is how far two clocks of the same machine may differ if one counts milliseconds.
	rounding = 3 * ms

	// longTimeout is the timeout of servers whose store answers.
	longTimeout = 10 * sec

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

// storeRuns is the function that runs a store's process. A test may restart the process.
const storeRuns = "github.com/simba-resp/simba-resp/backends/backendtest/stores.run.func1"

const linkAccepts = "github.com/simba-resp/simba-resp/backends/backendtest/stores.(*Link).accept"

var testCases atomic.Int64

// runID distinguishes the names of this process from those of earlier processes on the same store.
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
			// The link has a new goroutine after each time that it refused connections.
			tc.awaitGoroutines(already, goleak.IgnoreAnyFunction(linkAccepts), goleak.IgnoreAnyFunction(storeRuns))
		}
	})
	return tc
}

// awaitGoroutines waits until no goroutine is left. By default goleak waits less than a second.
func (tc *testCase) awaitGoroutines(but ...goleak.Option) {
	tc.t.Helper()
	var err error
	for end := time.Now().Add(tc.patience()); time.Now().Before(end); {
		if err = goleak.Find(but...); err == nil {
			return
		}
	}
	tc.t.Error(err)
}

// mutex returns a new name.
func (tc *testCase) mutex() string {
	tc.names++
	return fmt.Sprintf("m-%s-%d", tc.prefix, tc.names)
}

// server opens one more server.
func (tc *testCase) server() *server {
	tc.t.Helper()
	return tc.open(tc.engine.Open, tc.engine.Timeout)
}

// directServer opens a server that the link does not cut off, so the store always answers it.
func (tc *testCase) directServer() *server {
	tc.t.Helper()
	return tc.open(tc.engine.Direct, longTimeout)
}

func (tc *testCase) pair() (one, two *server) {
	tc.t.Helper()
	return tc.server(), tc.server()
}

// await waits for a condition that must become true.
func (tc *testCase) await(what string, is func() bool) {
	tc.t.Helper()
	limit := tc.patience()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	again := time.NewTicker(5 * ms)
	defer again.Stop()
	for !is() {
		select {
		case <-deadline.C:
			tc.t.Fatalf("waited %v without success: %s", limit, what)
		case <-again.C:
		}
	}
}

// patience is how long the suite waits for this engine.
func (tc *testCase) patience() time.Duration { return patience + tc.engine.PollLatency }

// during checks a condition repeatedly for a while. It must stay true.
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

// pause lets time pass.
func pause(d time.Duration) { <-time.After(d) }

func (tc *testCase) equal(what string, got, want []string) {
	tc.t.Helper()
	if !slices.Equal(got, want) {
		tc.t.Errorf("%s: %q, want %q", what, got, want)
	}
}
