package zookeeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/need"
)

// patience is how long a test waits for an event that must happen.
const patience = need.Hang

type waiter chan struct{}

func newWaiter() waiter { return make(waiter, 1) }

func (w waiter) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

func (w waiter) await(t testing.TB) {
	t.Helper()
	select {
	case <-w:
	case <-time.After(patience):
		t.Fatal("the waiter was not woken")
	}
}

func open(t testing.TB, o Options) *Backend {
	t.Helper()
	if o.Notices == nil {
		o.Notices = conformance.NewBroker()
	}
	b := openSoon(t, o)
	t.Cleanup(func() { b.Close() })
	return b
}

// openSoon opens a server. On a busy machine the ensemble may at first answer later than the
// timeout in o, so openSoon tries again.
func openSoon(t testing.TB, o Options) *Backend {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		b, err := Open(context.Background(), o)
		if err == nil {
			return b
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func acquire(t testing.TB, b *Backend, mutex, contender string, ttl time.Duration) simba.Outcome {
	t.Helper()
	out, _, err := b.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl})
	if err != nil {
		t.Fatalf("ACQUIRE of %s for %s: %v", contender, mutex, err)
	}
	return out
}

func take(t testing.TB, b *Backend, mutex, contender string, ttl time.Duration) simba.Outcome {
	t.Helper()
	out := acquire(t, b, mutex, contender, ttl)
	if out.Status != simba.StatusAcquired {
		t.Fatalf("ACQUIRE: %s should acquire %s, got %+v", contender, mutex, out)
	}
	return out
}

func block(t testing.TB, b *Backend, mutex, contender string, ttl time.Duration) (simba.Ticket, waiter) {
	t.Helper()
	w := newWaiter()
	out, ticket, err := b.Acquire(context.Background(), simba.AcquireRequest{
		Mutex: mutex, Contender: contender, TTL: ttl, Waiter: w,
	})
	if err != nil || out.Status != simba.StatusWaiting {
		t.Fatalf("ACQUIRE … WAIT: %s should wait for %s, got %+v, %v", contender, mutex, out, err)
	}
	return ticket, w
}

func giveUp(t testing.TB, b *Backend, mutex, contender string) {
	t.Helper()
	ok, _, err := b.Release(context.Background(), simba.ReleaseRequest{Mutex: mutex, Contender: contender})
	if err != nil || !ok {
		t.Fatalf("RELEASE of %s for %s: %v, %v; want true", contender, mutex, ok, err)
	}
}

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	need.Await(t, what, is)
}

func unavailable(t testing.TB, err error) {
	t.Helper()
	var u *simba.UnavailableError
	if !errors.As(err, &u) || u.Engine != "zookeeper" {
		t.Errorf("the error is %v; want an UnavailableError of zookeeper", err)
	}
}

// leases returns the lease nodes, without the markers and inboxes of sessions next to them.
func leases(t testing.TB, c *zk.Conn) []string {
	t.Helper()
	names, _, err := c.Children("/simba-leases")
	must(t, err)
	return slices.DeleteFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "session-") || strings.HasPrefix(name, "inbox-")
	})
}

type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}

// raw connects to the ensemble without the engine.
func raw(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(silentLogger{}))
	must(t, err)
	t.Cleanup(c.Close)
	return c
}
