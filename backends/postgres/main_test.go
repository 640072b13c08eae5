package postgres

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// TestMain checks for leaked goroutines. It waits longer for their end than goleak does by default,
// for busy machines.
func TestMain(m *testing.M) {
	heartbeat = 200 * time.Millisecond
	code := m.Run()
	var err error
	for start := time.Now(); time.Since(start) < patience; {
		if err = goleak.Find(); err == nil {
			break
		}
	}
	if code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// serveTimeout is the Options.Timeout of most tests. It is long, so that no request fails on a busy
// machine. Tests of missed deadlines use testTimeout.
const serveTimeout = time.Minute

// serve opens one more server on the store. set changes its options.
func serve(t testing.TB, addr string, set func(*Options)) *Backend {
	t.Helper()
	o := Options{
		URL: stores.PostgresURL(addr), Migrate: true, Timeout: serveTimeout, Notices: conformance.NewBroker(),
		HandoffWindow: time.Second, QueueGrace: 5 * time.Second,
	}
	if set != nil {
		set(&o)
	}
	b := openSoon(t, o)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v; want no error", err)
		}
	})
	return b
}

// openSoon calls Open until it succeeds. On a busy machine the database may at first answer too
// late.
func openSoon(t testing.TB, o Options) *Backend {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		b, err := Open(t.Context(), o)
		if err == nil {
			return b
		}
		if time.Now().After(end) {
			t.Fatalf("Open: %v; want no error", err)
		}
	}
}

const long = 10 * time.Minute

func request(mutex, contender string, ttl time.Duration) simba.AcquireRequest {
	return simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl}
}

func take(t testing.TB, b *Backend, mutex, contender string, ttl time.Duration) simba.Outcome {
	t.Helper()
	o, _, err := b.Acquire(t.Context(), request(mutex, contender, ttl))
	if err != nil || o.Status != simba.StatusAcquired {
		t.Fatalf("ACQUIRE: %s should acquire %s, got %+v, %v", contender, mutex, o, err)
	}
	return o
}

func release(t testing.TB, b *Backend, mutex, contender string) {
	t.Helper()
	ok, _, err := b.Release(t.Context(), simba.ReleaseRequest{Mutex: mutex, Contender: contender})
	if err != nil || !ok {
		t.Fatalf("RELEASE: %s should release %s, got %v, %v", contender, mutex, ok, err)
	}
}

func ownerOf(t testing.TB, b *Backend, mutex string) simba.Tenure {
	t.Helper()
	o, _, err := b.Owner(t.Context(), mutex)
	noError(t, err)
	return o
}

type waiter struct {
	ticket simba.Ticket
	wake   sync.Once
	woken  chan struct{}
}

func (w *waiter) Wake() { w.wake.Do(func() { close(w.woken) }) }

func block(t testing.TB, b *Backend, mutex, contender string, ttl time.Duration) *waiter {
	t.Helper()
	w := &waiter{woken: make(chan struct{})}
	r := request(mutex, contender, ttl)
	r.Waiter = w
	o, ticket, err := b.Acquire(t.Context(), r)
	if err != nil || o.Status != simba.StatusWaiting {
		t.Fatalf("ACQUIRE … WAIT: %s should wait for %s, got %+v, %v", contender, mutex, o, err)
	}
	w.ticket = ticket
	return w
}

func (w *waiter) granted(t testing.TB) simba.Outcome {
	t.Helper()
	select {
	case <-w.woken:
	case <-time.After(patience):
		t.Fatal("the waiter was not granted the mutex")
	}
	o, err := w.ticket.End(simba.EndWoken)
	if err != nil || o.Status != simba.StatusAcquired {
		t.Fatalf("the end of the woken wait: %+v, %v; want acquired", o, err)
	}
	return o
}

// patience is how long a test waits for an event.
const patience = need.Hang

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	need.Await(t, what, is)
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v; want no error", err)
	}
}

func isUnavailable(err error) bool {
	lost := (*simba.UnavailableError)(nil)
	return errors.As(err, &lost) && lost.Engine == "postgres"
}

// direct runs statements as the superuser, and returns the first value of the last result.
func direct(t testing.TB, store *stores.Server, statements string) string {
	t.Helper()
	value, err := stores.AskPostgres(store.Addr, statements)
	if err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	return value
}
