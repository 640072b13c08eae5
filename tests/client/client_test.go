package clienttest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/zookeeper"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
	"github.com/simba-resp/simba-resp/client/registry"
)

func TestNewRejectsInvalidOptions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer rdb.Close()
	deaf := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer deaf.Close()
	for _, c := range []struct {
		rdb  *redis.Client
		o    client.Options
		want string
	}{
		{nil, client.Options{}, "rdb is nil"},
		{deaf, client.Options{}, "rdb has the option ContextTimeoutEnabled off"},
		{rdb, client.Options{Timeout: -time.Second}, "Timeout is -1s"},
		{rdb, client.Options{Timeout: 500 * time.Microsecond}, "Timeout is 500µs"},
		{rdb, client.Options{TTL: time.Microsecond}, "TTL is 1µs"},
		{rdb, client.Options{Transition: 48 * time.Hour}, "Transition is 48h0m0s"},
		{rdb, client.Options{IDPrefix: strings.Repeat("a", 65)}, "IDPrefix has 65 bytes"},
	} {
		if got, err := client.New(c.rdb, c.o); got != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New returns %v, want %q", err, c.want)
		}
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	defer c.Close()
	work := func(context.Context) error { return nil }
	lock := func(mutex string, o ...client.Option) error { _, err := c.TryLock(bg, mutex, o...); return err }
	every := func(s client.Schedule) error { return c.Every(bg, "job", s, work) }
	newRegistry := func(cfg registry.Config) error { _, err := registry.New(c, cfg); return err }
	contender := func(delay time.Duration, onAcquired func(context.Context)) error {
		_, err := contend.New(c, "job", delay, onAcquired, nil)
		return err
	}
	for _, row := range []struct {
		want string
		err  error
	}{
		{"TTL is -1s, not 1ms to 24h0m0s", lock("job", client.WithTTL(-time.Second))},
		{"TTL is 999µs, not 1ms to 24h0m0s", lock("job", client.WithTTL(999*time.Microsecond))},
		{"TTL is 1.5ms, not a whole", lock("job", client.WithTTL(1500*time.Microsecond))},
		{"TTL is 24h0m0.001s, not", lock("job", client.WithTTL(24*time.Hour+time.Millisecond))},
		{"Transition is -1ms, not 0s to", lock("job", client.WithTransition(-time.Millisecond))},
		{"f is nil", c.Do(bg, "job", nil)},
		{"f is nil", c.Lead(bg, "job", nil)},
		{"f is nil", c.Every(bg, "job", client.Schedule{Period: 1}, nil)},
		{"Period is 0s, not more than 0", every(client.Schedule{})},
		{"InitialDelay is -1ns, less than 0", every(client.Schedule{Period: 1, InitialDelay: -1})},
		{"delay is -1ns, less than 0", contender(-1, func(context.Context) {})},
		{"onAcquired is nil", contender(0, nil)},
		{"Prefix is empty", newRegistry(registry.Config{})},
		{"ExpireAfter is -1ms", newRegistry(registry.Config{Prefix: "p", ExpireAfter: -time.Millisecond})},
		{"ExpireAfter is 1ns", newRegistry(registry.Config{Prefix: "p", ExpireAfter: 1})},
		{"ExpireAfter is 25h0m0s", newRegistry(registry.Config{Prefix: "p", ExpireAfter: 25 * time.Hour})},
		{"SpinEvery is -1ns, less than 0", newRegistry(registry.Config{Prefix: "p", SpinEvery: -1})},
	} {
		if row.err == nil || !strings.Contains(row.err.Error(), row.want) {
			t.Errorf("the error is %v, want %q", row.err, row.want)
		}
	}
}

// starts returns, by name, each call that starts something with a Client. Those whose names end
// with Run run until their contexts end.
func starts(t *testing.T, c *client.Client) map[string]func(context.Context) error {
	work := func(context.Context) error { return nil }
	until := func(ctx context.Context) error { <-ctx.Done(); return nil }
	k, err := contend.New(c, "job", 0, func(context.Context) {}, nil)
	must(t, err)
	s, err := contend.NewScheduler(c, "job", client.Schedule{Period: time.Second}, work)
	must(t, err)
	r, err := registry.New(c, registry.Config{Prefix: "spring"})
	must(t, err)
	rl := r.Obtain("x")
	return map[string]func(context.Context) error{
		"Lock":          func(ctx context.Context) error { _, err := c.Lock(ctx, "job"); return err },
		"TryLock":       func(ctx context.Context) error { _, err := c.TryLock(ctx, "job"); return err },
		"Do":            func(ctx context.Context) error { return c.Do(ctx, "job", work) },
		"TryDo":         func(ctx context.Context) error { return c.TryDo(ctx, "job", work) },
		"Owner":         func(ctx context.Context) error { _, err := c.Owner(ctx, "job"); return err },
		"Check":         func(ctx context.Context) error { _, err := c.Check(ctx, "job", 1); return err },
		"Registry.Lock": func(ctx context.Context) error { return rl.Lock(ctx, r.NewHolder()) },
		"Registry.TryLockFor": func(ctx context.Context) error {
			_, err := rl.TryLockFor(ctx, r.NewHolder(), time.Second)
			return err
		},
		"Watch": func(ctx context.Context) (err error) {
			for _, err = range c.Watch(ctx, "job") {
			}
			return err
		},
		"Lead, Run": func(ctx context.Context) error { return c.Lead(ctx, "job", until) },
		"Every, Run": func(ctx context.Context) error {
			return c.Every(ctx, "job", client.Schedule{Period: time.Second}, work)
		},
		"Contender.Run": k.Run,
		"Scheduler.Run": s.Run,
	}
}

func TestClosedClientReturnsErrClosed(t *testing.T) {
	t.Run("the Client", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			g := w.client()
			all := starts(t, g.Client)
			must(t, g.Close())
			for name, start := range all {
				if err := start(bg); !errors.Is(err, client.ErrClosed) || w.elapsed() != 0 {
					t.Errorf("%s returns %v after %v, want ErrClosed at once", name, err, w.elapsed())
				}
			}
		})
	})
	t.Run("go-redis", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			g := w.client()
			all := starts(t, g.Client)
			must(t, g.rdb.Close())
			for name, start := range all {
				at := w.elapsed()
				if err := start(bg); !errors.Is(err, client.ErrClosed) || w.elapsed() != at {
					t.Errorf("%s returns %v after %v, want ErrClosed at once", name, err, w.elapsed()-at)
				}
			}
			// A refused contender may still be stopping.
			if err := g.Close(); err != nil && !errors.Is(err, client.ErrClosed) {
				t.Errorf("Close returns %v, want nil or ErrClosed", err)
			}
			g.replace(w)
		})
	})
}

// replace gives g a Client that the world can close.
func (g *testClient) replace(w *world) {
	g.Client = w.client().Client
	g.rdb = redis.NewClient(&redis.Options{Dialer: g.dial, Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
}

func TestCloseStopsEverything(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for name := range starts(t, w.client().Client) {
			if !strings.HasSuffix(name, "Run") {
				continue
			}
			g := w.client()
			ended := make(chan error, 1)
			go func() { ended <- starts(t, g.Client)[name](bg) }()
			time.Sleep(time.Second)
			if w.owner("job") == "" {
				t.Fatalf("%s: one second after its start, nobody owns job", name)
			}
			must(t, g.Close())
			w.nothingLeft("job")
			if err := <-ended; !errors.Is(err, client.ErrClosed) {
				t.Errorf("%s ends with %v, want ErrClosed", name, err)
			}
		}
	})
}

// Stop with a context that has ended leaves the release to the background. Close must wait for that
// release.
func TestCloseWaitsForAnEarlierStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var all []*contend.Contender
		for i := range 100 {
			k, err := contend.New(g.Client, fmt.Sprint("job", i), 0, func(context.Context) {}, func() { time.Sleep(time.Second) })
			must(t, err)
			must(t, k.Start())
			all = append(all, k)
		}
		time.Sleep(time.Second)
		ended, cancel := context.WithCancel(bg)
		cancel()
		for _, k := range all {
			if err := k.Stop(ended); !errors.Is(err, context.Canceled) {
				t.Errorf("Stop returns %v, want context.Canceled", err)
			}
		}
		must(t, g.Close())
		for i := range all {
			w.nothingLeft(fmt.Sprint("job", i))
		}
	})
}

func TestCloseKeepsTheMutexWhileDoWorks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		worked := make(chan error, 1)
		go func() {
			worked <- g.Do(bg, "job", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				if err := w.client().TryDo(bg, "job", func(context.Context) error { return nil }); !errors.Is(err, client.ErrNotAcquired) {
					t.Errorf("TryDo of another Client during the work returns %v, want ErrNotAcquired", err)
				}
				return nil
			})
		}()
		synctest.Wait()
		must(t, g.Close())
		must(t, <-worked)
		w.nothingLeft("job")
	})
}

func TestCloseReturnsFailedReleases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		w.lock(g)
		must(t, g.rdb.Close())
		if err := g.Close(); !errors.Is(err, client.ErrClosed) {
			t.Errorf("after the go-redis client was closed, Close returns %v, want ErrClosed", err)
		}
		g.replace(w)
	})
}

func TestCloseEndsARegistryLockThatWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other, err := w.client().Lock(bg, "spring:x")
		must(t, err)
		g := w.client()
		r, err := registry.New(g.Client, registry.Config{Prefix: "spring"})
		must(t, err)
		l := r.Obtain("x")
		ended := make(chan error, 1)
		go func() { ended <- l.Lock(bg, r.NewHolder()) }()
		synctest.Wait()
		must(t, g.Close())
		if err := <-ended; !errors.Is(err, client.ErrClosed) {
			t.Errorf("the error is %v, want ErrClosed", err)
		}
		w.unlock(other)
	})
}

func TestIDOfAFailedTryLockMayBeUsedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.lock(w.client())
		g := w.client()
		for range 100 {
			if _, err := g.TryLock(bg, "job", client.WithID("x")); !errors.Is(err, client.ErrNotAcquired) {
				t.Fatalf("TryLock returns %v, want ErrNotAcquired", err)
			}
			if err := g.TryDo(bg, "job", func(context.Context) error { return nil }, client.WithID("x")); !errors.Is(err, client.ErrNotAcquired) {
				t.Fatalf("TryDo returns %v, want ErrNotAcquired", err)
			}
		}
	})
}

func TestOutageIsLoggedOnceForAllMutexes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		for i := range 100 {
			_, err := g.Lock(bg, fmt.Sprint("job", i), client.WithTTL(time.Minute))
			must(t, err)
		}
		time.Sleep(time.Second)
		w.stop()
		time.Sleep(50 * time.Second) // all owners have tried to renew
		w.begin()
		time.Sleep(time.Minute)
		got := log()
		if n := strings.Count(got, "\n"); n != 2 || !strings.Contains(got, "the server does not answer") || !strings.Contains(got, "answers again") {
			t.Errorf("the log has %d lines, want one for the outage and one for its end:\n%.2000s", n, got)
		}
	})
}

// The guide of the engine zookeeper asks for leases of at most half of the session timeout.
func TestTheDefaultLeaseIsAtMostHalfOfTheZooKeeperSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, err := w.client().Lock(bg, "job")
		must(t, err)
		tenure, _, err := w.engine.Owner(bg, "job")
		must(t, err)
		if lease := tenure.Transition; lease <= 0 || lease > zookeeper.DefaultSessionTimeout/2 {
			t.Errorf("the lease lasts %v, want more than 0 and at most half of the session timeout, %v", lease, zookeeper.DefaultSessionTimeout)
		}
		w.unlock(l)
	})
}
