package clienttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/simba-resp/simba-resp/backends/zookeeper"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
	"github.com/simba-resp/simba-resp/client/worker"
)

func TestNewRejectsInvalidOptions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer rdb.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	for _, c := range []struct {
		rdb  redis.UniversalClient
		o    client.Options
		want string
	}{
		{nil, client.Options{}, "rdb is nil"},
		{(*redis.Client)(nil), client.Options{}, "rdb is a nil *redis.Client"},
		{(*redis.ClusterClient)(nil), client.Options{}, "rdb is a nil *redis.ClusterClient"},
		{ring, client.Options{}, "rdb is a *redis.Ring"},
		{cluster, client.Options{}, "rdb is a *redis.ClusterClient"},
		{rdb, client.Options{Timeout: -time.Second}, "Timeout is -1s"},
		{rdb, client.Options{Timeout: 500 * time.Microsecond}, "Timeout is 500µs"},
		{rdb, client.Options{TTL: time.Microsecond}, "TTL is 1µs"},
		{rdb, client.Options{Transition: 48 * time.Hour}, "Transition is 48h0m0s"},
	} {
		if got, err := client.New(c.rdb, c.o); got != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New returns %v, want %q", err, c.want)
		}
	}
}

// Locks, Schedulers and Workers check windows and names as Contenders do.
func TestInvalidConfigsAreRefused(t *testing.T) {
	c := new(client.Client)
	contender := func(change func(*client.ContenderConfig)) error {
		cfg := client.ContenderConfig{Mutex: "job", TTL: time.Second, OnAcquired: func(context.Context, client.State) {}}
		change(&cfg)
		k, err := c.NewContender(cfg)
		if (k == nil) != (err != nil) {
			t.Errorf("NewContender returns %v, %v", k, err)
		}
		return err
	}
	scheduler := func(change func(*client.ScheduleConfig)) error {
		cfg := client.ScheduleConfig{Mutex: "job", TTL: time.Second, Period: time.Second, Work: func(context.Context) error { return nil }}
		change(&cfg)
		s, err := c.NewScheduler(cfg)
		if (s == nil) != (err != nil) {
			t.Errorf("NewScheduler returns %v, %v", s, err)
		}
		return err
	}
	newWorker := func(change func(*worker.Config)) error {
		cfg := worker.Config{Mutex: "job", TTL: time.Second, StartWork: func(context.Context) error { return nil }}
		change(&cfg)
		_, err := worker.New(c, cfg)
		return err
	}
	newRegistry := func(cfg registry.Config) error { _, err := registry.New(c, cfg); return err }
	observer := func(cfg client.ObserverConfig) error { _, err := c.NewObserver(cfg); return err }
	lock := func(mutex string, opts ...client.LockOption) error {
		if _, err := c.TryLock(bg, mutex, opts...); err == nil {
			t.Errorf("TryLock of %q succeeds", mutex)
		}
		_, err := c.Lock(bg, mutex, opts...)
		return err
	}
	for _, valid := range []error{
		contender(func(*client.ContenderConfig) {}), scheduler(func(*client.ScheduleConfig) {}), newWorker(func(*worker.Config) {}),
	} {
		must(t, valid)
	}
	for _, row := range []struct {
		want string
		err  error
	}{
		{"mutex", contender(func(c *client.ContenderConfig) { c.Mutex = "" })},
		{"mutex", contender(func(c *client.ContenderConfig) { c.Mutex = "a b" })},
		{"contender", contender(func(c *client.ContenderConfig) { c.ID = "a@@b" })},
		{"TTL is -1s, not 1ms to 24h0m0s", contender(func(c *client.ContenderConfig) { c.TTL = -time.Second })},
		{"TTL is 999µs, not 1ms to 24h0m0s", contender(func(c *client.ContenderConfig) { c.TTL = 999 * time.Microsecond })},
		{"TTL is 1.5ms, not a whole", contender(func(c *client.ContenderConfig) { c.TTL = 1500 * time.Microsecond })},
		{"TTL is 24h0m0.001s, not", contender(func(c *client.ContenderConfig) { c.TTL = 24*time.Hour + time.Millisecond })},
		{"Transition is -1ms, not 0s to", contender(func(c *client.ContenderConfig) { c.Transition = -time.Millisecond })},
		{"InitialDelay is -1ns, less than 0", contender(func(c *client.ContenderConfig) { c.InitialDelay = -1 })},
		{"OnAcquired is nil", contender(func(c *client.ContenderConfig) { c.OnAcquired = nil })},
		{"mutex", scheduler(func(c *client.ScheduleConfig) { c.Mutex = "" })},
		{"TTL is 1ns", scheduler(func(c *client.ScheduleConfig) { c.TTL = 1 })},
		{"Period is 0s, not more than 0", scheduler(func(c *client.ScheduleConfig) { c.Period = 0 })},
		{"InitialDelay is -1ns, less than 0", scheduler(func(c *client.ScheduleConfig) { c.InitialDelay = -1 })},
		{"Strategy is Strategy(2), not", scheduler(func(c *client.ScheduleConfig) { c.Strategy = 2 })},
		{"AlignToClock goes with FixedRate", scheduler(func(c *client.ScheduleConfig) { c.AlignToClock, c.Strategy = true, client.FixedDelay })},
		{"AlignToClock goes without InitialDelay", scheduler(func(c *client.ScheduleConfig) { c.AlignToClock, c.InitialDelay = true, time.Second })},
		{"Work is nil", scheduler(func(c *client.ScheduleConfig) { c.Work = nil })},
		{"mutex", newWorker(func(c *worker.Config) { c.Mutex = "" })},
		{"contender", newWorker(func(c *worker.Config) { c.ID = "a b" })},
		{"TTL is 1ns", newWorker(func(c *worker.Config) { c.TTL = 1 })},
		{"Transition is -1", newWorker(func(c *worker.Config) { c.Transition = -time.Millisecond })},
		{"StartWork is nil", newWorker(func(c *worker.Config) { c.StartWork = nil })},
		{"Prefix", newRegistry(registry.Config{})},
		{"ID", newRegistry(registry.Config{Prefix: "p", ID: "a b"})},
		{"ExpireAfter is -1ms", newRegistry(registry.Config{Prefix: "p", ExpireAfter: -time.Millisecond})},
		{"ExpireAfter is 1ns", newRegistry(registry.Config{Prefix: "p", ExpireAfter: 1})},
		{"ExpireAfter is 25h0m0s", newRegistry(registry.Config{Prefix: "p", ExpireAfter: 25 * time.Hour})},
		{"Mode is Mode(7)", newRegistry(registry.Config{Prefix: "p", Mode: 7})},
		{"SpinEvery is -1ns, less than 0", newRegistry(registry.Config{Prefix: "p", SpinEvery: -1})},
		{"Capacity is -1, less than 0", newRegistry(registry.Config{Prefix: "p", Capacity: -1})},
		{"mutex", observer(client.ObserverConfig{Mutex: "", OnChange: func(client.State) {}})},
		{"OnChange is nil", observer(client.ObserverConfig{Mutex: "job"})},
		{"mutex", lock("")},
		{"TTL is -1s, not", lock("job", client.WithTTL(-time.Second))},
		{"Transition is -1m", lock("job", client.WithTTL(time.Second), client.WithTransition(-time.Millisecond))},
		{"contender", lock("job", client.WithID("two words"))},
	} {
		if row.err == nil || !strings.Contains(row.err.Error(), row.want) {
			t.Errorf("the error is %v, want %q", row.err, row.want)
		}
	}
}

func TestNewWarnsIfContextTimeoutEnabledIsOff(t *testing.T) {
	for heeds, want := range map[bool]int{true: 0, false: 1} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: heeds})
		defer rdb.Close()
		log := new(bytes.Buffer)
		_, err := client.New(rdb, client.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
		must(t, err)
		if got := strings.Count(log.String(), "ContextTimeoutEnabled"); got != want {
			t.Errorf("with ContextTimeoutEnabled %v the log is %q, want %d warnings", heeds, log, want)
		}
	}
}

// everyStart returns, by name, each function that starts something with a Client.
func everyStart(t *testing.T, c *client.Client) map[string]func() error {
	k, err := c.NewContender(client.ContenderConfig{Mutex: "job", OnAcquired: func(context.Context, client.State) {}})
	must(t, err)
	s, err := c.NewScheduler(client.ScheduleConfig{Mutex: "job", Period: time.Second, Work: func(context.Context) error { return nil }})
	must(t, err)
	w, err := worker.New(c, worker.Config{Mutex: "job", StartWork: func(context.Context) error { return nil }})
	must(t, err)
	o, err := c.NewObserver(client.ObserverConfig{Mutex: "job", OnChange: func(client.State) {}})
	must(t, err)
	r, err := registry.New(c, registry.Config{Prefix: "spring"})
	must(t, err)
	rl, err := r.Obtain("x")
	must(t, err)
	work := func(context.Context) error { return nil }
	return map[string]func() error{
		"Lock":          func() error { _, err := c.Lock(bg, "job"); return err },
		"TryLock":       func() error { _, err := c.TryLock(bg, "job"); return err },
		"Do":            func() error { return c.Do(bg, "job", work) },
		"TryDo":         func() error { return c.TryDo(bg, "job", work) },
		"Contender.Run": func() error { return k.Run(bg) },
		"Scheduler.Run": func() error { return s.Run(bg) },
		"Worker.Run":    func() error { return w.Run(bg) },
		"Observer.Run":  func() error { return o.Run(bg) },
		"RegistryLock":  func() error { return rl.Lock(bg, r.NewHolder()) },
		"Owner":         func() error { _, err := c.Owner(bg, "job"); return err },
		"Check":         func() error { _, err := c.Check(bg, "job", 1); return err },
	}
}

func TestClosedClientReturnsErrClosed(t *testing.T) {
	t.Run("the Client", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			g := w.client()
			all := everyStart(t, g.Client)
			must(t, g.Close())
			for name, start := range all {
				if err := start(); !errors.Is(err, client.ErrClosed) || w.elapsed() != 0 {
					t.Errorf("%s returns %v after %v, want ErrClosed at once", name, err, w.elapsed())
				}
			}
		})
	})
	t.Run("go-redis", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			g := w.client()
			all := everyStart(t, g.Client)
			must(t, g.rdb.Close())
			for name, start := range all {
				at := w.elapsed()
				most := time.Duration(0)
				if name == "Observer.Run" {
					most = 3 * time.Second // an Observer first waits for its subscription
				}
				if err := start(); !errors.Is(err, client.ErrClosed) || w.elapsed()-at > most {
					t.Errorf("%s returns %v after %v, want ErrClosed within %v", name, err, w.elapsed()-at, most)
				}
			}
			// A refused contender may still be stopping.
			if err := g.Close(); err != nil && !errors.Is(err, client.ErrClosed) {
				t.Errorf("Close returns %v, want nil or ErrClosed", err)
			}
			g.Client = w.client().Client // a Client that the world can close
			g.rdb = redis.NewClient(&redis.Options{Dialer: g.dial, Addr: "127.0.0.1:7379"})
		})
	})
}

func TestCloseStopsEverything(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range []string{"Contender.Run", "Scheduler.Run", "Worker.Run"} {
			g := w.client()
			ended := make(chan error, 1)
			go func() { ended <- everyStart(t, g.Client)[name]() }()
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
		var all []*worker.Worker
		for i := range 100 {
			k, err := worker.New(g.Client, worker.Config{
				Mutex: fmt.Sprint("job", i), StartWork: func(context.Context) error { return nil },
				StopWork: func() error { time.Sleep(time.Second); return nil },
			})
			must(t, err)
			must(t, k.Start())
			all = append(all, k)
		}
		time.Sleep(time.Second)
		ended, cancel := context.WithCancel(bg)
		cancel()
		for _, k := range all {
			go func() { _ = k.Stop(ended) }()
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
		g.rdb = redis.NewClient(&redis.Options{Dialer: g.dial, Addr: "127.0.0.1:7379"})
		g.Client = w.client().Client // a Client that the world can close
	})
}

func TestCloseEndsARegistryLockThatWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.lock(w.client()) // locks job
		other, err := w.client().Lock(bg, "spring:x")
		must(t, err)
		g := w.client()
		r, err := registry.New(g.Client, registry.Config{Prefix: "spring"})
		must(t, err)
		l, err := r.Obtain("x")
		must(t, err)
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

func TestCanceledLockNamesTheLastOwner(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.contend("boss")
		synctest.Wait()
		g := w.client()
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		go func() {
			time.Sleep(time.Second)
			g.silence()
		}()
		var held *client.NotAcquiredError
		if _, err := g.Lock(ctx, "job"); !errors.As(err, &held) || held.Owner.ID != "boss" || !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("Lock returns %v, want ErrUnavailable", err)
		}
		g.heal()
	})
}

func TestOutageIsLoggedOnceForAllMutexes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		for i := range 1000 {
			k, err := g.NewContender(client.ContenderConfig{Mutex: fmt.Sprint("job", i), TTL: time.Minute, OnAcquired: func(context.Context, client.State) {}})
			must(t, err)
			must(t, k.Start())
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

func TestOwnerHasTheStartOfTheTenureAndItsConnection(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		inWorld(t, func(t *testing.T, w *world) {
			g := w.client()
			rdb := redis.NewClient(&redis.Options{
				Dialer: g.dial, Addr: "127.0.0.1:7379", Protocol: protocol, ClientName: "worker-7", PoolSize: 1,
				ContextTimeoutEnabled: true, DisableIdentity: true,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			t.Cleanup(func() { must(t, rdb.Close()) })
			c, err := client.New(rdb, client.Options{})
			must(t, err)
			began := time.Now()
			must(t, rdb.Do(bg, "simba.acquire", "job", "a", 600_000, "session").Err())
			id, err := rdb.ClientID(bg).Result()
			must(t, err)
			time.Sleep(time.Minute)
			must(t, rdb.Do(bg, "simba.guard", "job", "a", 600_000).Err())
			o, err := c.Owner(bg, "job")
			must(t, err)
			if !o.Since.Equal(began.Truncate(time.Millisecond)) || o.Connection != (client.Connection{ID: id, Addr: "pipe", Name: "worker-7"}) {
				t.Errorf("RESP%d: the lease is held since %v by %+v, want since %v and id %d", protocol, o.Since, o.Connection, began, id)
			}
			must(t, rdb.Do(bg, "simba.acquire", "other", "a", 600_000).Err())
			o, err = c.Owner(bg, "other")
			must(t, err)
			if !o.Since.Equal(time.Now().Truncate(time.Millisecond)) || o.Connection != (client.Connection{}) {
				t.Errorf("RESP%d: without SESSION the lease is held since %v by %+v, want now and no connection", protocol, o.Since, o.Connection)
			}
		})
	}
}
