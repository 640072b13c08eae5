package outages

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/backends/backendtest"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	outageAskers  = 8
	outageWaiters = 4
)

// limits bounds the times of a server in an outage. The test first subtracts the pauses of its own
// process, which a pulse measures.
type limits struct {
	timeout time.Duration // --backend-timeout
	// slack is how much later than timeout a reply may come. It covers the inexact timer of the
	// server, which needs some milliseconds, and a busy machine. It is too short for another
	// attempt of the server, so the test would notice one.
	slack time.Duration
	// session is the session timeout of the engine zookeeper. The server finds a dead connection
	// after two thirds of it.
	session time.Duration
}

// outageLimits returns the limits of a test. A long campaign runs on a quiet machine, and has
// shorter ones. Otherwise the machine may stop a server or a store for a second or two.
func outageLimits() limits {
	if simbatest.Long() {
		return limits{timeout: 2 * time.Second, slack: 1500 * time.Millisecond, session: 4 * time.Second}
	}
	return limits{timeout: 4 * time.Second, slack: 3500 * time.Millisecond, session: 6 * time.Second}
}

// TestAServerRecoversFromEachOfManyPartitions cuts the store off in every way, while clients send
// requests, wait and subscribe. Each client must get an error reply in time, and be served soon
// after the outage. In the end the server must have no more goroutines, files and connections.
func TestAServerRecoversFromEachOfManyPartitions(t *testing.T) {
	for i, engine := range simbatest.StoreEngines {
		t.Run(engine, func(test *testing.T) {
			test.Parallel()
			t := simbatest.NewCampaign(test, "store cut off and healed", engine)
			s := simbatest.OpenShared(t, engine)
			o := &outages{t: t, engine: engine, limits: outageLimits(), link: stores.NewLink(t, s.Store.Addr), pulse: startPulse(t)}
			o.server = startBriefly(t, s, o.link.Addr(), o.limits.timeout, o.limits.session)
			simbatest.PreferServer(o.server.Pid())
			o.play(simbatest.Count(5, 100), rand.New(rand.NewPCG(uint64(i), 3)))
		})
	}
}

// outages cuts a server off from its store.
type outages struct {
	t      *simbatest.Campaign
	engine string
	limits limits
	link   *stores.Link
	server *simbatest.Server
	pulse  *pulse

	mu       sync.Mutex // guards the fields below
	failures simbatest.Latencies
	granted  uint64 // the largest token that a waiter received
	received uint64 // the last token that the subscriber received
}

// asker is a client that sends requests without a pause, or a subscriber.
type asker struct {
	served, refused atomic.Int64 // replies; for a subscriber, served counts its messages
}

// crowd is all clients of a server.
type crowd struct {
	askers, waiters []*asker
	listener        *asker
}

// all returns the clients that are served while the store is reachable.
func (c *crowd) all() []*asker { return append(slices.Concat(c.askers, c.waiters), c.listener) }

func (o *outages) play(times int, rng *rand.Rand) {
	o.among(func(*crowd) {}) // so that caches and pools are filled
	goroutines, files := o.goroutines(), o.files()
	var recoveries simbatest.Latencies
	o.among(func(c *crowd) {
		for i := range times {
			way := []string{"refused", "reset", "blackholed"}[rng.IntN(3)]
			switch way {
			case "refused":
				o.link.Refuse()
			case "reset":
				o.link.Reset()
			case "blackholed":
				o.link.Blackhole()
			}
			if way != "reset" { // a reset ends at once, and often loses no request
				o.until(c.askers, "is told of the outage", func(a *asker) *atomic.Int64 { return &a.refused })
			}
			o.link.Heal()
			healed, last, lost := time.Now(), o.lastGranted(), o.pulse.soFar()
			o.until(c.all(), "is served again", func(a *asker) *atomic.Int64 { return &a.served })
			o.untilReceived(last)
			took := time.Since(healed)
			if recoveries = append(recoveries, took); took-(o.pulse.soFar()-lost) > backendtest.Recovery {
				o.t.Errorf("outage %d (%s): only %v after its end all clients are served", i, way, took)
			}
			if o.t.Failed() {
				return
			}
		}
	})
	goroutinesAfter := o.backTo("goroutines", goroutines, o.goroutines)
	filesAfter := o.backTo("open files", files, o.files)
	o.t.Counted(times, "errors after at most %v, served again after at most %v; goroutines %d, then %d; open files %d, then %d",
		o.failures.Longest(), recoveries.Longest(), goroutines, goroutinesAfter, files, filesAfter)
}

// among runs clients of each kind, and calls do. It returns when each client has been served.
func (o *outages) among(do func(*crowd)) {
	stop := make(chan struct{})
	var clients, listener sync.WaitGroup
	c := &crowd{listener: &asker{}}
	subscription := o.subscribe()
	listener.Go(func() { o.receive(c.listener, subscription) })
	for i := range outageAskers {
		a := &asker{}
		c.askers = append(c.askers, a)
		clients.Go(func() { o.ask(a, i, stop) })
	}
	for i := range outageWaiters {
		a := &asker{}
		c.waiters = append(c.waiters, a)
		clients.Go(func() { o.wait(a, i, stop) })
	}
	o.until(c.all(), "is served", func(a *asker) *atomic.Int64 { return &a.served })
	do(c)
	close(stop)
	clients.Wait()
	_ = subscription.Close() // ends receive
	listener.Wait()
}

// ask runs an asker. Half of the askers use a mutex of their own, the others share one mutex.
func (o *outages) ask(a *asker, id int, stop <-chan struct{}) {
	c, err := redis.Dial("tcp", o.server.Addr, redis.DialReadTimeout(simbatest.Patience))
	if err != nil {
		o.t.Error(err)
		return
	}
	defer c.Close()
	mutex, me := fmt.Sprint("own-", id), fmt.Sprint("c", id)
	if id%2 == 0 {
		mutex = "shared"
	}
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		command, args := "SIMBA.ACQUIRE", []any{mutex, me, 1000, "NOQUEUE"}
		switch i % 4 {
		case 1:
			command, args = "SIMBA.GUARD", []any{mutex, me, 1000}
		case 2:
			command, args = "SIMBA.OWNER", []any{mutex}
		case 3:
			command, args = "SIMBA.RELEASE", []any{mutex, me}
		}
		began, lost := time.Now(), o.pulse.soFar()
		_, err := c.Do(command, args...)
		if err == nil {
			a.served.Add(1)
			continue
		}
		if !o.refused(a, err, began, lost, o.limits.timeout, command, args) {
			return
		}
	}
}

// refused checks an error reply, and reports whether it is the one of an outage. lost is the
// reading of the pulse when the request began. The reply must not come later than limit plus the
// slack.
func (o *outages) refused(a *asker, err error, began time.Time, lost, limit time.Duration, command string, args []any) bool {
	took := time.Since(began)
	if !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
		o.t.Errorf("%s %v returns the error %v, want TRYAGAIN", command, args, err)
		return false
	}
	o.mu.Lock()
	o.failures = append(o.failures, took)
	o.mu.Unlock()
	if lost = o.pulse.soFar() - lost; took-lost > limit+o.limits.slack {
		o.t.Errorf("%s %v returns an error after %v, in which this process was stopped for %v: %v", command, args, took, lost, err)
	}
	a.refused.Add(1)
	return true
}

// until waits until every client has had a reply of the given kind to a request that it sent after
// the call of until.
func (o *outages) until(all []*asker, what string, replies func(*asker) *atomic.Int64) {
	const more = 2 // the first reply may be to an earlier request
	var before []int64
	for _, a := range all {
		before = append(before, replies(a).Load())
	}
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		done := true
		for i, a := range all {
			done = done && replies(a).Load() >= before[i]+more
		}
		if done || o.t.Failed() {
			return
		}
	}
	o.t.Errorf("this did not happen within %v: every client %s", simbatest.Patience, what)
}

// backTo waits until a figure is not larger than before the outages, and returns it. Connections
// and goroutines of an outage may take a moment to end.
func (o *outages) backTo(what string, before int, now func() int) (n int) {
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if n = now(); n <= before {
			return n
		}
	}
	o.t.Errorf("the server had %d %s before the outages, and has %d after them", before, what, n)
	return n
}

// pooled returns the number of the server's connections to its store. The engine mysql keeps as
// many connections as its requests needed at the same time, so the number varies. Each connection
// is an open file.
func (o *outages) pooled() int {
	n := o.link.Connections()
	if n > outageClients+pooledBesides {
		o.t.Errorf("the server has %d connections to the store for %d clients", n, outageClients)
	}
	return n
}

// outageClients is the number of clients that send requests.
const outageClients = outageAskers + outageWaiters

// pooledBesides is the number of connections that the server uses itself: to subscribe, to poll and
// to reconcile.
const pooledBesides = 4

// goroutines asks the server for its number of goroutines, without those of its connections to the
// store. The driver of the engine mysql has one for each connection.
func (o *outages) goroutines() int {
	c, err := redis.Dial("tcp", o.server.Addr)
	if err != nil {
		o.t.Fatal(err)
	}
	defer c.Close()
	info, err := redis.String(c.Do("INFO", "server"))
	if err != nil {
		o.t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, "go_goroutines:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				o.t.Fatal(err)
			}
			if o.engine == "mysql" {
				n -= o.pooled()
			}
			return n
		}
	}
	o.t.Fatalf("no go_goroutines in %s", info)
	return 0
}

// files returns the number of open files of the server, without its connections to the store.
func (o *outages) files() int {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", o.server.Pid()))
	if err != nil {
		o.t.Fatal(err)
	}
	return len(open) - o.pooled()
}
