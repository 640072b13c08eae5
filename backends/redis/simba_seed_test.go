package redis

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
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
	b := openSoon(t, Options{URL: url, Options: proxy.Options{Notices: n, HandoffWindow: time.Second, QueueGrace: 5 * time.Second}})
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

// waits lets a contender wait for a mutex that is not free.
func waits(t testing.TB, b *Backend, mutex, contender string) (*waiter, simba.Ticket) {
	t.Helper()
	w := newWaiter()
	_, ticket := acquire(t, b, mutex, contender, time.Minute, w)
	return w, ticket
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

// mustOwn fails the test unless the contender owns the mutex; "" = nobody.
func mustOwn(t testing.TB, b *Backend, mutex, contender string) {
	t.Helper()
	if o := owner(t, b, mutex); o.Owner != contender {
		t.Fatalf("OWNER of %s: %+v; want the owner %q", mutex, o, contender)
	}
}

// wants fails the test unless ACQUIRE for a minute has the status.
func wants(t testing.TB, status simba.Status, b *Backend, mutex, contender string) {
	t.Helper()
	if o, _ := acquire(t, b, mutex, contender, time.Minute, nil); o.Status != status {
		t.Fatalf("ACQUIRE of %s by %s: %+v; want %v", mutex, contender, o, status)
	}
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
