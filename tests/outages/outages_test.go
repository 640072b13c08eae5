// Package outages tests servers that share a store. The tests cut the servers off from the store,
// and pause and stop it.
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
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	outageAskers  = 8
	outageWaiters = 4
)

// limits has the longest times that a server in an outage may take.
type limits struct {
	timeout time.Duration // --backend-timeout
	// slack is how much later than timeout a reply may arrive. It allows for inexact timers, and
	// for a busy machine. If the server tried the request a second time, the reply would
	// arrive later than this.
	slack time.Duration
	// session is the session timeout of the engine zookeeper. The server notices a dead connection
	// after two thirds of this time.
	session time.Duration
}

// outageLimits returns the limits of a test. A long campaign runs on a quiet machine, and has
// shorter limits. On other machines a server or a store may pause for a second or two.
func outageLimits() limits {
	if simbatest.Long() {
		return limits{timeout: 2 * time.Second, slack: 1500 * time.Millisecond, session: 4 * time.Second}
	}
	return limits{timeout: 4 * time.Second, slack: 3500 * time.Millisecond, session: 6 * time.Second}
}

// TestAServerRecoversFromEachOfManyPartitions cuts the store off in several ways, while clients
// send requests, wait and subscribe. Each client must get an error reply in time, and a good reply
// soon after the outage. At the end the server must not have more goroutines and open files than
// before.
func TestAServerRecoversFromEachOfManyPartitions(t *testing.T) {
	for i, engine := range simbatest.StoreEngines {
		t.Run(engine, func(test *testing.T) {
			test.Parallel()
			t := simbatest.NewCampaign(test, "store cut off and healed", engine)
			s := simbatest.OpenShared(t, engine)
			o := &outages{t: t, engine: engine, limits: outageLimits(), link: stores.NewLink(t, s.Store.Addr)}
			o.server = startBriefly(t, s, o.link.Addr(), o.limits.timeout, o.limits.session)
			simbatest.PreferServer(o.server.Pid())
			o.play(simbatest.Count(5, 100), rand.New(rand.NewPCG(uint64(i), 3)))
		})
	}
}

// outages is a server with a link to its store, which the test cuts.
type outages struct {
	t      *simbatest.Campaign
	engine string
	limits limits
	link   *stores.Link
	server *simbatest.Server

	mu       sync.Mutex // guards the fields below
	failures simbatest.Latencies
	granted  uint64 // the largest token that a waiter received
	received uint64 // the largest token that the subscriber received
}

// asker counts the replies to one client.
type asker struct {
	served  atomic.Int64 // good replies; of a subscriber, the messages that it received
	refused atomic.Int64 // error replies
}

type crowd struct {
	askers, waiters []*asker
	listener        *asker
}

func (c *crowd) all() []*asker { return append(slices.Concat(c.askers, c.waiters), c.listener) }

func (o *outages) play(times int, rng *rand.Rand) {
	o.among(func(*crowd) {}) // fill caches and pools
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
			if way != "reset" { // a reset is short, and often loses no request
				o.until(c.askers, "gets an error reply", func(a *asker) *atomic.Int64 { return &a.refused })
			}
			o.link.Heal()
			healed, last := time.Now(), o.lastGranted()
			o.until(c.all(), "gets a good reply after the outage", func(a *asker) *atomic.Int64 { return &a.served })
			o.untilReceived(last)
			took := time.Since(healed)
			if recoveries = append(recoveries, took); took > need.AtMost(conformance.Recovery) {
				o.t.Errorf("outage %d (%s): the last client gets a good reply %v after the end, want at most %v", i, way, took, conformance.Recovery)
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

// among runs clients of each kind, and calls do when each client has had a good reply.
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
	o.until(c.all(), "gets a good reply", func(a *asker) *atomic.Int64 { return &a.served })
	do(c)
	close(stop)
	clients.Wait()
	_ = subscription.Close() // receive then returns
	listener.Wait()
}

// ask sends the requests of one client until stop is closed. Half of these clients have their own
// mutex, the others share one.
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
		began := time.Now()
		_, err := c.Do(command, args...)
		if err == nil {
			a.served.Add(1)
			continue
		}
		if !o.refused(a, err, began, o.limits.timeout, command, args) {
			return
		}
	}
}

// refused checks the error reply of an outage, and reports whether the client may go on. began is
// when the client sent the request. The reply may take at most the time limit plus the slack.
func (o *outages) refused(a *asker, err error, began time.Time, limit time.Duration, command string, args []any) bool {
	took := time.Since(began)
	if !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
		o.t.Errorf("%s %v returns the error %v, want TRYAGAIN", command, args, err)
		return false
	}
	o.mu.Lock()
	o.failures = append(o.failures, took)
	o.mu.Unlock()
	if most := limit + o.limits.slack; took > need.AtMost(most) {
		o.t.Errorf("%s %v returns an error after %v, want %v at most; the error is %v", command, args, took, most, err)
	}
	a.refused.Add(1)
	return true
}

// until waits until every client has had a reply of the given kind to a request that it sent during
// the call.
func (o *outages) until(all []*asker, what string, replies func(*asker) *atomic.Int64) {
	const more = 2 // the first may be the reply to an earlier request
	var before []int64
	for _, a := range all {
		before = append(before, replies(a).Load())
	}
	o.await("every client "+what, func() bool {
		done := true
		for i, a := range all {
			done = done && replies(a).Load() >= before[i]+more
		}
		return done
	})
}

// await waits until holds returns true or the test has failed. The caller must end the clients, so
// await does not end the test.
func (o *outages) await(what string, holds func() bool) {
	for end := time.Now().Add(simbatest.Patience); !holds() && !o.t.Failed(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			o.t.Errorf("not within %v: %s", simbatest.Patience, what)
		}
	}
}

// backTo waits until a number is not larger than before the outages, and returns it. Connections
// and goroutines of an outage may need a moment to end.
func (o *outages) backTo(what string, before int, now func() int) (n int) {
	o.await(fmt.Sprintf("the server has %d %s, as before the outages", before, what), func() bool {
		n = now()
		return n <= before
	})
	return n
}

// pooled returns the number of the server's connections to its store. For mysql and postgres this
// number varies: it is the largest number of concurrent requests so far.
func (o *outages) pooled() int {
	n := o.link.Connections()
	if n > outageClients+pooledBesides {
		o.t.Errorf("the server has %d connections to the store, want at most %d", n, outageClients+pooledBesides)
	}
	return n
}

// outageClients is the number of clients that send requests.
const outageClients = outageAskers + outageWaiters

// pooledBesides is the number of connections that the server uses itself: to subscribe, poll and
// reconcile.
const pooledBesides = 4

// goroutines returns the server's number of goroutines. For the engine mysql it leaves out
// those of the driver, one for each connection to the store.
func (o *outages) goroutines() int {
	c, err := redis.Dial("tcp", o.server.Addr)
	simbatest.Must(o.t, err)
	defer c.Close()
	info, err := redis.String(c.Do("INFO", "server"))
	simbatest.Must(o.t, err)
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, "go_goroutines:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			simbatest.Must(o.t, err)
			if o.engine == "mysql" {
				n -= o.pooled()
			}
			return n
		}
	}
	o.t.Fatalf("INFO server has no go_goroutines: %s", info)
	return 0
}

// files returns the number of the server's open files, without its connections to the store.
func (o *outages) files() int {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", o.server.Pid()))
	simbatest.Must(o.t, err)
	return len(open) - o.pooled()
}

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

// eventually repeats a command until the store answers it.
func eventually(t testing.TB, c redis.Conn, command string, args ...any) simbatest.Record {
	t.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); {
		r, err := simbatest.ToRecord(c.Do(command, args...))
		if err == nil {
			return r
		}
		if !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
			t.Fatalf("%s %v returns the error %v, want none or TRYAGAIN", command, args, err)
		}
	}
	t.Fatalf("the store is back, but %s %v still returns TRYAGAIN", command, args)
	return nil
}

func TestAServerStopsInOrderWhileItsStoreIsAway(t *testing.T) {
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		server := startBriefly(t, s, s.Store.Addr, time.Second, longSession)
		eventually(t, simbatest.Conn(t, server), "SIMBA.ACQUIRE", "job", "a", 600_000)
		w := simbatest.WaitRetrying(t, server, "job", "b")
		s.Store.Pause()
		server.Signal(syscall.SIGTERM)
		if code := server.Wait(t); code != 0 {
			t.Errorf("the server exits with code %d, want 0:\n%s", code, server.Output())
		}
		select {
		case <-w.Replied:
		case <-time.After(simbatest.Patience):
			t.Fatal("the waiter gets no reply when the server stops")
		}
		if w.Err == nil {
			t.Errorf("the waiter got the reply %v, want an error", w.Reply)
		}
	})
}

// longSession is a session timeout of the engine zookeeper. It exceeds each outage of a test, so no
// owner loses its lease.
const longSession = time.Hour

// startBriefly starts a server with the store at addr. timeout limits the server's wait for replies
// of the store. session is the session timeout of the engine zookeeper. If the server fails to
// start, because the store is slow, startBriefly starts it again.
func startBriefly(t testing.TB, s *simbatest.Shared, addr string, timeout, session time.Duration) *simbatest.Server {
	t.Helper()
	flags := append(s.Flags(addr), "--backend-timeout", timeout.String())
	if s.Engine == "zookeeper" {
		flags = append(flags, "--zookeeper-session-timeout", session.String())
	}
	server := simbatest.New(t, flags...)
	simbatest.Await(t, "the server starts", server.StartOrEnd)
	return server
}
