package redis

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// listener is a simba.Notices with a queue for each subscribed channel. A test that waits for a
// message on one channel drops no message on another.
type listener struct {
	mu     sync.Mutex
	queues map[string]chan string // payloads by channel
}

func newListener() *listener { return &listener{queues: make(map[string]chan string)} }

func (e *listener) Publish(channel, payload string) int {
	c := e.queueOf(channel)
	if c == nil {
		return 0
	}
	select {
	case c <- payload:
	default:
	}
	return 1
}

func (e *listener) Subscribed(channel string) bool { return e.queueOf(channel) != nil }
func (e *listener) SubscribedPattern(string) bool  { return false }
func (e *listener) Any() bool                      { return true }

// queueOf returns the queue of a channel, nil if the channel is not subscribed.
func (e *listener) queueOf(channel string) chan string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queues[channel]
}

// open subscribes to a channel without a call of Backend.Subscribed.
func (e *listener) open(channel string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.queues[channel] == nil {
		e.queues[channel] = make(chan string, 10000)
	}
}

// subscribe subscribes to a channel as a client does.
func (e *listener) subscribe(t testing.TB, b *Backend, channel string) {
	t.Helper()
	e.open(channel)
	if _, err := b.Subscribed(t.Context(), channel, false); err != nil {
		t.Fatal(err)
	}
}

// receive waits for a payload on a channel that match accepts.
func (e *listener) receive(t testing.TB, channel string, match func(payload string) bool) string {
	t.Helper()
	deadline := time.After(need.Hang)
	var others []string
	for {
		select {
		case payload := <-e.queueOf(channel):
			if match(payload) {
				return payload
			}
			others = append(others, payload)
		case <-deadline:
			t.Fatalf("the expected message did not arrive on %s, only %q", channel, others)
		}
	}
}

func is(want string) func(string) bool { return func(got string) bool { return got == want } }

type waiter struct {
	once  sync.Once
	woken chan struct{}
}

func newWaiter() *waiter { return &waiter{woken: make(chan struct{})} }
func (b *waiter) Wake()  { b.once.Do(func() { close(b.woken) }) }

func (b *waiter) await(t testing.TB) {
	t.Helper()
	select {
	case <-b.woken:
	case <-time.After(need.Hang):
		t.Fatal("the waiter was not woken")
	}
}

func serve(t testing.TB, url string, n simba.Notices) *Backend {
	t.Helper()
	b := openSoon(t, Options{URL: url, Notices: n, HandoffWindow: time.Second, QueueGrace: 5 * time.Second})
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// openSoon opens a server at a running Redis. It retries, since on a busy machine Redis' first
// reply may be late.
func openSoon(t testing.TB, o Options) *Backend {
	t.Helper()
	for end := time.Now().Add(need.Hang); ; {
		b, err := Open(t.Context(), o)
		if err == nil {
			return b
		}
		if time.Now().After(end) {
			t.Fatalf("open %s: %v", o.URL, err)
		}
	}
}

func acquire(t testing.TB, b *Backend, mutex, contender string, ttl time.Duration, w simba.Waiter) (simba.Outcome, simba.Ticket) {
	t.Helper()
	o, ticket, err := b.Acquire(t.Context(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl, Waiter: w})
	must(t, err)
	return o, ticket
}

func release(t testing.TB, b *Backend, mutex, contender string) bool {
	t.Helper()
	ok, _, err := b.Release(t.Context(), simba.ReleaseRequest{Mutex: mutex, Contender: contender})
	must(t, err)
	return ok
}

func owner(t testing.TB, b *Backend, mutex string) simba.Tenure {
	t.Helper()
	o, _, err := b.Owner(t.Context(), mutex)
	must(t, err)
	return o
}

// clientOf returns a client of a Redis, which is closed when the test ends.
func clientOf(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	need.Await(t, what, is)
}

func TestOurReleaseReservesTheMutexForSimbaWaiter(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "jvm").subscribe()
	acquire(t, b, "m", "ours", time.Minute, nil)
	j.receive("acquired@@ours")
	j.mustQueue()
	release(t, b, "m", "ours")
	j.receive("released@@ours")
	if o, _ := acquire(t, b, "m", "barger", time.Minute, nil); o.Status != simba.StatusQueued {
		t.Errorf("ACQUIRE of barger: %+v; want queued, since jvm has the reservation", o)
	}
	j.mustAcquire()
	if o := owner(t, b, "m"); o.Owner != "jvm" || o.Waiters != 1 {
		t.Errorf("OWNER: %+v; want jvm and 1 waiter", o)
	}
}

func TestSimbaReleaseGrantsOurBlockedWaiter(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "jvm").subscribe()
	e.subscribe(t, b, "simba:{m}")
	e.subscribe(t, b, "simba-events:{m}")
	j.mustAcquire()
	e.receive(t, "simba:{m}", is("acquired@@jvm"))
	e.receive(t, "simba-events:{m}", func(p string) bool { return strings.Contains(p, `"acquired"`) && strings.Contains(p, `"jvm"`) })
	w := newWaiter()
	_, ticket := acquire(t, b, "m", "ours", time.Minute, w)
	awaitIdle(t, b, "m", "ours")
	j.release()
	w.await(t)
	o, err := ticket.End(simba.EndWoken)
	if err != nil || o.Status != simba.StatusAcquired {
		t.Fatalf("our blocked waiter: %+v %v; want acquired", o, err)
	}
	e.receive(t, "simba-events:{m}", func(p string) bool { return strings.Contains(p, `"released"`) && strings.Contains(p, `"jvm"`) })
	j.receive("acquired@@ours")
}

func TestExpiredSimbaLeaseIsHandedOff(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	for ttl := 300 * time.Millisecond; ; ttl *= 2 {
		mutex := fmt.Sprint("m", ttl)
		newSimbaContender(t, s.Addr, seeds.Simba31, mutex, "jvm").acquire(ttl)
		w := newWaiter()
		_, ticket := acquire(t, b, mutex, "ours", time.Minute, w)
		if ticket == nil && ttl < 10*time.Second {
			continue // on a busy machine Simba's lease may expire before our request
		}
		granted(t, w, ticket)
		return
	}
}

func TestSimbaAndOurContendersExcludeEachOther(t *testing.T) {
	s := stores.Redis(t)
	one := serve(t, "redis://"+s.Addr, newListener())
	two := serve(t, "redis://"+s.Addr, newListener())
	const each, simbas, ours = 25, 4, 4
	var inside, tenures atomic.Int64
	work := func(who string) {
		if n := inside.Add(1); n != 1 {
			t.Errorf("%d contenders, among them %s, own the mutex at the same time; want 1", n, who)
		}
		tenures.Add(1)
		inside.Add(-1)
	}
	var all sync.WaitGroup
	for i := range simbas {
		j := newSimbaContender(t, s.Addr, seeds.Simba31, "hot", fmt.Sprintf("jvm%d", i)).subscribe()
		messages := j.pubsub.Channel(redis.WithChannelSize(10000))
		all.Go(func() {
			for range each {
				// Simba asks again after a notice, or when the lease that it saw has
				// ended.
				for {
					if owner, _ := j.acquire(10 * time.Second); owner == j.id {
						break
					}
					retry := time.After(200 * time.Millisecond)
				listen:
					for {
						select {
						case m := <-messages:
							if strings.HasPrefix(m.Payload, "released@@") {
								break listen
							}
						case <-retry:
							break listen
						}
					}
				}
				work(j.id)
				j.release()
			}
		})
	}
	for i := range ours {
		b, id := []*Backend{one, two}[i%2], fmt.Sprintf("ours%d", i)
		all.Go(func() {
			var last uint64
			for range each {
				w := newWaiter()
				o, ticket := acquire(t, b, "hot", id, 10*time.Second, w)
				if ticket != nil {
					w.await(t)
					var err error
					if o, err = ticket.End(simba.EndWoken); err != nil {
						t.Error(err)
					}
				}
				if o.Status != simba.StatusAcquired || o.Token <= last {
					t.Errorf("ACQUIRE of %s: %+v; want acquired with a token above %d", id, o, last)
				}
				last = o.Token
				work(id)
				if !release(t, b, "hot", id) {
					t.Errorf("RELEASE of %s returned 0: it lost its lease", id)
				}
			}
		})
	}
	all.Wait()
	if n := tenures.Load(); n != each*(simbas+ours) {
		t.Errorf("the contenders had %d tenures, want %d", n, each*(simbas+ours))
	}
}

func TestSimbaOwnerIsNotInItsOwnQueue(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "jvm")
	j.mustAcquire()
	j.mustAcquire() // Simba's owner queues behind itself
	owner(t, b, "m")
	list, _, err := b.Queue(t.Context(), "m", 10)
	if err != nil || len(list) != 0 {
		t.Errorf("QUEUE: %v %v; want no entry, not even of the owner", list, err)
	}
}
