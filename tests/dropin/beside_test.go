package dropin

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// ours is a contender of the Go client: it polls, and is told of its turns.
type ours struct {
	id       string
	k        *client.Contender
	acquired chan uint64 // tokens
	last     uint64
}

func newOurs(t testing.TB, addr, mutex, id string) *ours {
	t.Helper()
	c, err := client.New(connectTo(t, addr), client.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	k := &ours{id: id, acquired: make(chan uint64, 1)}
	k.k, err = c.NewContender(client.ContenderConfig{
		Mutex: mutex, ID: id, TTL: lease * time.Millisecond * 2 / 3, Transition: lease * time.Millisecond / 3,
		OnAcquired: func(ctx context.Context, _ client.State) { k.acquired <- client.Token(ctx) },
		OnReleased: func(client.State) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *ours) acquire(ctx context.Context) (string, error) {
	if err := k.k.Start(); err != nil {
		return "", err
	}
	select {
	case k.last = <-k.acquired:
		return k.id, nil
	case <-ctx.Done():
		_ = k.k.Stop(context.WithoutCancel(ctx)) // the test fails already
		return "", fmt.Errorf("%s is not granted the mutex: %w", k.id, ctx.Err())
	}
}

func (k *ours) token() uint64 { return k.last }

func (k *ours) release(ctx context.Context) error { return k.k.Stop(ctx) }

// More rules of contests beside Simba.
const (
	allWays  = "the mutex goes from each kind to each"
	announce = "acquired is announced once for each tenure"
)

// beside is a contest of contenders of Simba with two of ours: SIMBA.ACQUIRE … WAIT, and the Go client. It ends
// when the mutex has changed hands often enough, in all directions, and all have owned it. Leases are long: a
// turn that does not come early would only come when one ends. The pauses are of different lengths, and long
// enough that the mutex is free at times: who has no place in our queue has a chance only then.
func beside(t *testing.T, at *site, mutex string, theirs ...contender) {
	t.Helper()
	const changes = 100
	pause := time.Duration(len(theirs)) * 25 * time.Millisecond
	c := newContestAt(t, at, mutex)
	c.patience = early
	// While somebody listens at our server, it notices what theirs do, also when nobody of ours waits.
	here, there := c.count(c.server.Addr), c.count(at.store)
	all := len(theirs) + 2
	end := time.Now().Add(simbatest.Patience)
	c.mix(theirs, pause, func() bool {
		return time.Now().After(end) || c.noted.enough(changes, all) && len(c.noted.ways()) == 4
	})
	c.inAllDirections()
	for owner, n := range c.noted.count() {
		if at.engine != "mysql" { // it tells of what a look finds
			here.settle(c, "acquired@@"+owner, n)
			there.settle(c, "acquired@@"+owner, n)
		}
	}
	c.noted.more = []string{allWays, announce}
	c.end()
}

// mix has contenders of Simba take turns with two of ours, until enough says so, or one gets no turn.
func (c *contest) mix(theirs []contender, pause time.Duration, enough func() bool) {
	c.t.Helper()
	var running sync.WaitGroup
	stop, stopOurs := make(chan struct{}), make(chan struct{})
	for _, k := range theirs {
		c.enterUntil(&running, k, stop, pause)
	}
	c.enterUntil(&c.running, &simba{connect(c.t, c.server), c.mutex, "waits"}, stopOurs, pause)
	c.enterUntil(&c.running, newOurs(c.t, c.at.last().Addr, c.mutex, "client"), stopOurs, pause)
	for !enough() && !c.noted.stuck() {
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	running.Wait()
	// Only now: a release by Simba up to 3.1 is told to the first of the queue at most, so among theirs
	// alone those of later versions may wait until the lease ends.
	close(stopOurs)
	c.running.Wait()
}

// fromKilled is the way of a mutex whose owner was killed. It is the longest: the lease has to end.
const fromKilled = "from a killed owner"

// ways returns from which kind to which the mutex went, theirs or ours, and how long it was nobody's, or
// nobody's for sure, in between. Of an owner that was killed before it could say that it is one there is no tenure: its
// lease counts to what was between the others.
func (l *tenures) ways() map[string]simbatest.Latencies {
	ways := make(map[string]simbatest.Latencies)
	kind := func(n tenure) string {
		if n.kind == "*dropin.simba" || n.kind == "*dropin.ours" {
			return "ours"
		}
		return "theirs"
	}
	all := l.inOrder()
	for i := 1; i < len(all); i++ {
		if all[i-1].owner != all[i].owner {
			way := kind(all[i-1]) + " to " + kind(all[i])
			if all[i-1].killed {
				way = fromKilled
			}
			ways[way] = append(ways[way], all[i].from-all[i-1].to)
		}
	}
	return ways
}

// inAllDirections looks whether the mutex went from theirs to ours, from ours to theirs, and among each.
func (c *contest) inAllDirections() {
	ways := c.noted.ways()
	for _, way := range []string{"theirs to theirs", "theirs to ours", "ours to theirs", "ours to ours", fromKilled} {
		c.t.Logf("%s: %d times, %v", way, len(ways[way]), ways[way])
		if len(ways[way]) == 0 && way != fromKilled {
			c.noted.breaks(allWays, "never from %s", way)
		}
	}
}

// heard counts what comes on the mutex' channel.
type heard struct {
	addr    string
	notices <-chan *redis.Message
	counts  map[string]int
}

// count listens at a server, or at the store. That of MySQL has no channels.
func (c *contest) count(addr string) *heard {
	c.t.Helper()
	if c.at.engine == "mysql" {
		addr = c.server.Addr
	}
	sub := connectTo(c.t, addr).Subscribe(c.t.Context(), seeds.Lease(c.mutex))
	c.t.Cleanup(func() { sub.Close() })
	if _, err := sub.Receive(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return &heard{addr, sub.Channel(redis.WithChannelSize(100_000)), make(map[string]int)}
}

// settle waits until a payload has come n times, and looks that it does not come once more. What comes
// beyond is there already: a step publishes all that it publishes at once.
func (h *heard) settle(c *contest, payload string, n int) {
	late := time.After(soon)
	for h.counts[payload] < n {
		select {
		case m := <-h.notices:
			h.counts[m.Payload]++
		case <-late:
			c.noted.breaks(announce, "%s comes %d times at %s for %d tenures", payload, h.counts[payload], h.addr, n)
			return
		}
	}
	for more := true; more; {
		select {
		case m := <-h.notices:
			h.counts[m.Payload]++
		case <-time.After(100 * time.Millisecond):
			more = false
		}
	}
	if h.counts[payload] > n {
		c.noted.breaks(announce, "%s comes %d times at %s for %d tenures", payload, h.counts[payload], h.addr, n)
	}
}

// TestBesideSimba has two contenders of each generation and two of ours take turns, 100 and
// more in all, and then those of all generations at once.
func TestBesideSimba(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"redis", "embedded"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at := newSite(t, engine, 2)
			for _, gen := range seeds.Generations {
				t.Run(gen.Name, func(t *testing.T) {
					t.Parallel()
					mutex := "turns-" + gen.Name
					beside(t, at, mutex, newJVM(t, at.store, gen, mutex, "jvm0"), newJVM(t, at.store, gen, mutex, "jvm1"))
				})
			}
			t.Run("all generations", func(t *testing.T) {
				t.Parallel()
				var theirs []contender
				for _, gen := range seeds.Generations {
					theirs = append(theirs, newJVM(t, at.store, gen, "turns", "jvm-"+gen.Name))
				}
				beside(t, at, "turns", theirs...)
			})
		})
	}
}

// TestContendersOfSimbaHaveAnyName has two of each generation take turns on mutexes with names that SIMBA.*
// need not take. On Redis every name works.
func TestContendersOfSimbaHaveAnyName(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"redis", "embedded"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at := newSite(t, engine, 1)
			for what, mutex := range map[string]string{
				"a blank":              "two words",
				"braces":               "a{b}c",
				"braces the wrong way": "a}b{c",
				"the end of a key":     "m}:contender",
				"a line break":         "two\nlines",
				"no UTF-8":             "\xff\x00",
				"300 bytes":            strings.Repeat("n", 300),
			} {
				for _, gen := range seeds.Generations {
					if engine == "redis" && gen.Braceless {
						continue // they do not hear one another: whoever waits, waits until the lease ends
					}
					t.Run(what+" "+gen.Name, func(t *testing.T) {
						t.Parallel()
						c := newContestAt(t, at, mutex+gen.Name)
						c.patience, c.blind = soon, true
						for i := range 2 {
							c.enter(newJVM(t, at.store, gen, c.mutex, fmt.Sprint("jvm", i)), 10, time.Millisecond)
						}
						c.end()
					})
				}
			}
		})
	}
}
