package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// serveLogging is serve with a log.
func serveLogging(t *testing.T, url string) (*Backend, *conformance.Log) {
	t.Helper()
	log := new(conformance.Log)
	b := openSoon(t, Options{URL: url, Options: proxy.Options{Notices: noNotices{}, QueueGrace: time.Minute, Logger: slog.New(slog.NewTextHandler(log, nil))}})
	t.Cleanup(func() { _ = b.Close() })
	return b, log
}

func configure(t *testing.T, addr string, words ...any) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	must(t, c.Do(t.Context(), append([]any{"CONFIG", "SET"}, words...)...).Err())
}

func hasFault(b *Backend, setting string, refused bool) bool {
	return slices.ContainsFunc(b.Faults(), func(f proxy.Fault) bool { return f.Setting == setting && f.Refused == refused })
}

// awaitCheck makes the server check Redis until the check has, or no longer has, a fault.
func awaitCheck(t *testing.T, b *Backend, setting string, refused, want bool) {
	t.Helper()
	b.Checks.Again()
	until(t, fmt.Sprintf("fault of %s: %v", setting, want), func() bool { return hasFault(b, setting, refused) == want })
}

// begin tries to begin a tenure.
func begin(b *Backend, mutex, contender string) error {
	o, _, err := b.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: time.Minute})
	if err == nil && o.Status != simba.StatusAcquired {
		return errors.New(o.Status.String())
	}
	return err
}

func TestEvictionSetAtRunTimeLetsNoSecondOwnerIn(t *testing.T) {
	s := stores.Redis(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
	e, log := newListener(), new(conformance.Log)
	b := openSoon(t, Options{URL: "redis://" + s.Addr, Options: proxy.Options{Notices: e, HandoffWindow: time.Minute, QueueGrace: time.Minute, Logger: slog.New(slog.NewTextHandler(log, nil))}})
	defer b.Close()
	const mutexes = 20
	for i := range mutexes {
		acquire(t, b, fmt.Sprint("m", i), "a", 10*time.Minute, nil)
	}
	w, ticket := waits(t, b, "m0", "w")
	e.subscribe(t, b, "simba:{m0}:polls")
	acquire(t, b, "m0", "polls", time.Minute, nil)

	configure(t, s.Addr, "maxmemory-policy", "allkeys-random")
	awaitCheck(t, b, "maxmemory-policy", true, true)
	w.await(t)
	_, err := ticket.End(simba.EndWoken)
	mustBeMisconfigured(t, "the wait", err, "maxmemory-policy allkeys-random")

	// Owners go on, as long as Redis has their leases. A release hands off to nobody.
	if g, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "m1", Contender: "a", TTL: 10 * time.Minute}); err != nil || g.Status != simba.StatusRenewed {
		t.Errorf("GUARD by the owner: %+v, %v; want renewed", g, err)
	}
	if o, _ := acquire(t, b, "m1", "a", 10*time.Minute, nil); o.Status != simba.StatusRenewed {
		t.Errorf("ACQUIRE by the owner: %+v; want renewed", o)
	}
	if !release(t, b, "m0", "a") {
		t.Error("RELEASE by the owner did not end the tenure")
	}

	for i := range mutexes / 2 { // as an eviction does
		must(t, clientOf(t, s.Addr).Del(t.Context(), seeds.Lease(fmt.Sprint("m", i))).Err())
	}
	for i := range mutexes {
		m := fmt.Sprint("m", i)
		for _, q := range []simba.AcquireRequest{{NoQueue: true}, {}, {Waiter: newWaiter()}} {
			q.Mutex, q.Contender, q.TTL = m, "b", time.Minute
			_, _, err := b.Acquire(t.Context(), q)
			mustBeMisconfigured(t, "ACQUIRE "+m, err, "maxmemory-policy allkeys-random")
		}
	}
	if n := log.Count("level=ERROR"); n != 1 || log.Count("setting=maxmemory-policy") != 1 {
		t.Errorf("the log has %d errors, want one that names maxmemory-policy", n)
	}

	configure(t, s.Addr, "maxmemory-policy", "noeviction")
	e.receive(t, "simba:{m0}:polls", is("released@@a"))
	if err := begin(b, "m0", "polls"); err != nil {
		t.Errorf("ACQUIRE after the repair and its notice: %v; want acquired", err)
	}
}

// A new connection leads to a node with other settings. The test does not start the check itself.
func TestNodeOfANewConnectionIsChecked(t *testing.T) {
	evicting := []any{"maxmemory", "100mb", "maxmemory-policy", "volatile-lru"}
	refuses := func(t *testing.T, b *Backend) {
		t.Helper()
		tries := 0 // each with a mutex of its own, because an owner may renew
		until(t, "a request is refused", func() bool {
			tries++
			err := begin(b, fmt.Sprint("new-", tries), "b")
			refusal := (*simba.MisconfiguredError)(nil)
			if errors.As(err, &refusal) {
				mustBeMisconfigured(t, "ACQUIRE", err, "maxmemory-policy volatile-lru")
			}
			return refusal != nil
		})
		if !hasFault(b, "maxmemory-policy", true) {
			t.Errorf("the server reports %v, want maxmemory-policy", b.Faults())
		}
	}
	t.Run("restart", func(t *testing.T) {
		s := stores.Redis(t)
		b, _ := serveLogging(t, "redis://"+s.Addr)
		s.Stop()
		s.StartWith("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")
		refuses(t, b)
		configure(t, s.Addr, "maxmemory-policy", "noeviction")
		until(t, "the mutex is granted after the repair", func() bool { return begin(b, "new", "b") == nil })
	})
	t.Run("sentinel", func(t *testing.T) {
		s := stores.RedisSentinel(t)
		b, _ := serveLogging(t, "redis+sentinel://"+strings.Join(s.SentinelAddrs, ",")+"/"+s.MasterName)
		configure(t, s.Nodes[1].Addr, evicting...)
		sentinelFailover(t, s)
		refuses(t, b)
	})
	t.Run("cluster", func(t *testing.T) {
		s := stores.RedisCluster(t)
		b, _ := serveLogging(t, "redis+cluster://"+strings.Join(s.Addrs[:3], ","))
		configure(t, s.Nodes[3].Addr, evicting...)
		s.Nodes[0].Kill()
		refuses(t, b)
	})
}

func TestChecksWhileANodeOfTheClusterIsAway(t *testing.T) {
	s := stores.RedisCluster(t, "--cluster-require-full-coverage", "no")
	b, _ := serveLogging(t, "redis+cluster://"+strings.Join(s.Addrs, ","))
	configure(t, s.Nodes[0].Addr, "maxmemory", "100mb", "maxmemory-policy", "volatile-lru")
	awaitCheck(t, b, "maxmemory-policy", true, true)
	s.Nodes[3].Kill() // the replica of the first master
	s.Nodes[0].Kill()
	configure(t, s.Nodes[1].Addr, "replica-read-only", "no")
	awaitCheck(t, b, "replica-read-only", false, true)
	if !hasFault(b, "maxmemory-policy", true) {
		t.Errorf("while the refused node is away, the server reports only %v", b.Faults())
	}
	s.Nodes[0].Start() // it has not kept the setting
	awaitCheck(t, b, "maxmemory-policy", true, false)
	s.Nodes[0].Kill()
	configure(t, s.Nodes[1].Addr, "maxmemory", "100mb", "maxmemory-policy", "volatile-lru")
	awaitCheck(t, b, "maxmemory-policy", true, true)
	configure(t, s.Nodes[1].Addr, "maxmemory-policy", "noeviction")
	awaitCheck(t, b, "maxmemory-policy", true, false)
}

// One of two servers refuses the store. It leaves the waiters of the other server to that server.
func TestAllowEvictionHoldsAtRunTime(t *testing.T) {
	s := stores.Redis(t, "--maxmemory", "100mb")
	b, _ := serveLogging(t, "redis://"+s.Addr)
	allows, _ := serveLogging(t, "redis://"+s.Addr+"?allow-eviction=true")
	acquire(t, b, "m", "a", time.Minute, nil)
	w, ticket := waits(t, allows, "m", "w")
	configure(t, s.Addr, "maxmemory-policy", "allkeys-lru")
	awaitCheck(t, b, "maxmemory-policy", true, true)
	awaitCheck(t, allows, "maxmemory-policy", false, true)

	st := runScript(t, b, "m", releaseScript, "a", "0", "", "")
	if st.status != "released" || st.owner != "" {
		t.Errorf("release at the server that refuses Redis: status %s, owner %q; want released and no owner", st.status, st.owner)
	}
	granted(t, w, ticket)
}
