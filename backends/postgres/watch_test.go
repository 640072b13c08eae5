package postgres

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

func options(addr string) Options {
	return Options{URL: stores.PostgresURL(addr), Migrate: true, Options: proxy.Options{Timeout: serveTimeout, Notices: conformance.NewBroker()}}
}

// handoffs lets two servers pass a mutex on, and returns how long the median waiter waits for the
// release by the other server.
func handoffs(t *testing.T, one, two *Backend, mutex string, n int) time.Duration {
	t.Helper()
	var took []time.Duration
	from, to := one, two
	take(t, from, mutex, "a", long)
	for range n {
		w := block(t, to, mutex, "b", long)
		began := time.Now()
		release(t, from, mutex, "a")
		w.Granted(t)
		took = append(took, time.Since(began))
		release(t, to, mutex, "b")
		from, to = to, from
		take(t, from, mutex, "a", long)
	}
	release(t, from, mutex, "a")
	slices.Sort(took)
	t.Logf("%d handoffs between servers: median %v, 90 %% %v, all %v", n, took[n/2], took[n*9/10], took[n-1])
	return took[n/2]
}

// hearing waits until a server hears itself.
func hearing(t *testing.T, b *Backend) {
	t.Helper()
	await(t, "the server hears notices", func() bool { return b.store.watch.hears.Load() })
}

func TestWaiterHearsOfAReleaseByAnotherServerAtOnce(t *testing.T) {
	store := stores.Postgres(t)
	one, two := serve(t, store.Addr, nil), serve(t, store.Addr, nil)
	hearing(t, one)
	hearing(t, two)
	if took := handoffs(t, one, two, "m", 30); took > need.AtMost(20*time.Millisecond) {
		t.Errorf("the median handoff took %v, want at most 20 ms", took)
	}
}

// The connection that listens is killed again and again. A waiter must learn of the release that
// happens meanwhile.
func TestReleaseIsNoticedAlthoughTheListeningConnectionIsLost(t *testing.T) {
	store := stores.Postgres(t)
	one := serve(t, store.Addr, nil)
	link := stores.NewLink(t, store.Addr)
	log := new(conformance.Log)
	two := serve(t, store.Addr, func(o *Options) {
		o.ListenURL, o.Timeout = stores.PostgresURL(link.Addr()), testTimeout
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	for _, cut := range []func(){link.Reset, link.Refuse, link.Blackhole} {
		hearing(t, two)
		take(t, one, "m", "a", long)
		w := block(t, two, "m", "b", long)
		cut()
		release(t, one, "m", "a")
		w.Granted(t)
		link.Heal()
		release(t, two, "m", "b")
	}
	link.Refuse()
	await(t, "the log has the loss of notices", func() bool { return strings.Contains(log.String(), "no notices of other servers arrive") })
	link.Heal()
	await(t, "the log has their return", func() bool { return strings.Contains(log.String(), "notices of other servers arrive again") })
}

func TestListenURLIsNeededBehindPgBouncer(t *testing.T) {
	store := stores.Postgres(t)
	bouncer := stores.PgBouncer(t, store, 5)
	one := serve(t, bouncer.Addr, func(o *Options) { o.ListenURL = stores.PostgresURL(store.Addr) })
	log := new(conformance.Log)
	deaf := serve(t, bouncer.Addr, func(o *Options) {
		o.Timeout = testTimeout
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	hearing(t, one)
	handoffs(t, one, deaf, "m", 3)
	await(t, "the log names the setting", func() bool {
		return strings.Contains(log.String(), "postgres-listen-url") && strings.Contains(log.String(), errPooler.Error())
	})
	two := serve(t, bouncer.Addr, func(o *Options) { o.ListenURL = stores.PostgresURL(store.Addr) })
	hearing(t, two)
	if took := handoffs(t, one, two, "m", 20); took > need.AtMost(20*time.Millisecond) {
		t.Errorf("the median handoff took %v, want at most 20 ms", took)
	}
}
