package redis

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// recovery bounds the time from a failover until a server serves again. It allows for a busy
// machine.
const recovery = 8 * time.Second

// readRequest is a request that depends on a read. It reports whether the reply shows the state
// after the failover. Before the failover alice owned mutex s with token t1. After it bob owns s
// with token t2.
type readRequest func(ctx context.Context, b *Backend, t1, t2 uint64) (right bool, err error)

var readRequests = map[string]readRequest{
	"CHECK of the old token": func(ctx context.Context, b *Backend, t1, _ uint64) (bool, error) {
		ok, _, err := b.Check(ctx, "s", t1)
		return !ok, err
	},
	"CHECK of the new token": func(ctx context.Context, b *Backend, _, t2 uint64) (bool, error) {
		ok, _, err := b.Check(ctx, "s", t2)
		return ok, err
	},
	"OWNER": func(ctx context.Context, b *Backend, _, t2 uint64) (bool, error) {
		o, _, err := b.Owner(ctx, "s")
		return o.Owner == "bob" && o.Token == t2, err
	},
	"QUEUE": func(ctx context.Context, b *Backend, _, _ uint64) (bool, error) {
		list, _, err := b.Queue(ctx, "s", 10)
		return len(list) == 1 && list[0].Contender == "carol", err
	},
	"SCAN": func(ctx context.Context, b *Backend, _, _ uint64) (bool, error) {
		return scans(ctx, b, simba.ScanRequest{}, "new", "s")
	},
	"SCAN HELD": func(ctx context.Context, b *Backend, _, _ uint64) (bool, error) {
		return scans(ctx, b, simba.ScanRequest{Held: true}, "new", "s")
	},
	"SCAN CONTENDED": func(ctx context.Context, b *Backend, _, _ uint64) (bool, error) {
		return scans(ctx, b, simba.ScanRequest{Contended: true}, "s")
	},
	"SCAN HELD CONTENDED": func(ctx context.Context, b *Backend, _, _ uint64) (bool, error) {
		return scans(ctx, b, simba.ScanRequest{Held: true, Contended: true}, "s")
	},
	"ACQUIRE NOQUEUE": func(ctx context.Context, b *Backend, _, _ uint64) (bool, error) {
		o, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "s", Contender: "dave", TTL: time.Minute, NoQueue: true})
		return o.Status == simba.StatusBusy && o.Owner == "bob", err
	},
	"GUARD by another": func(ctx context.Context, b *Backend, _, _ uint64) (bool, error) {
		o, err := b.Guard(ctx, simba.GuardRequest{Mutex: "s", Contender: "dave", TTL: time.Minute})
		return o.Status == simba.StatusLost && o.Owner == "bob", err
	},
}

func scans(ctx context.Context, b *Backend, r simba.ScanRequest, want ...string) (bool, error) {
	var got []string
	for {
		page, _, err := b.Scan(ctx, r)
		if err != nil {
			return false, err
		}
		got = append(got, page.Mutexes...)
		if r.Cursor = page.Cursor; r.Cursor == 0 {
			slices.Sort(got)
			return slices.Equal(slices.Compact(got), want), nil
		}
	}
}

// unavailable reports whether err is an UnavailableError. It fails the test on any other error.
func unavailable(t testing.TB, err error) bool {
	t.Helper()
	lost := (*simba.UnavailableError)(nil)
	if err != nil && !errors.As(err, &lost) {
		t.Fatal(err)
	}
	return err != nil
}

// checkReader checks a server that only reads, before and after a failover. The server connects to
// url, and the failover leaves its connections at the old primary. The function failover makes the
// failover. It returns the new primary's own URL, and a function that reports whether url leads to
// the new primary too. When url leads there, the server must answer a read correctly within
// recovery. At most maxRefusals reads may fail before.
func checkReader(t *testing.T, url string, failover func() (newURL string, urlLeadsThere func() bool), maxRefusals int, read readRequest) {
	reader := serve(t, url, noNotices{})
	for _, r := range reader.subs.all() {
		r.stop() // so that only its reads can notice the failover
	}
	before := serve(t, url, noNotices{})
	alice, _ := acquire(t, before, "s", "alice", 10*time.Minute, nil)
	acquire(t, before, "old", "alice", 10*time.Minute, nil)
	acquire(t, before, "old", "bob", 10*time.Minute, nil)
	var all sync.WaitGroup
	for range 20 { // so that the pool has many connections
		all.Go(func() {
			_, err := read(t.Context(), reader, alice.Token, 0)
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	newURL, urlLeadsThere := failover()
	writer := serve(t, newURL, noNotices{})
	release(t, writer, "s", "alice")
	release(t, writer, "old", "alice")
	release(t, writer, "old", "bob")
	bob, _ := acquire(t, writer, "s", "bob", 10*time.Minute, nil)
	acquire(t, writer, "s", "carol", 10*time.Minute, nil)
	acquire(t, writer, "new", "bob", 10*time.Minute, nil)
	refusals, from, prepared := 0, time.Now(), time.Now()
	for {
		if time.Since(prepared) < time.Minute && !urlLeadsThere() {
			from = time.Now()
		}
		right, err := read(t.Context(), reader, alice.Token, bob.Token)
		if !unavailable(t, err) {
			if !right {
				t.Fatal("a read returned the data of the old primary")
			}
			break
		}
		if refusals++; refusals > maxRefusals || time.Since(from) > need.AtMost(recovery) {
			t.Fatalf("%d reads failed in the %v after the failover, want at most %d in %v; the last error: %v",
				refusals, time.Since(from), maxRefusals, recovery, err)
		}
	}
	for range 20 {
		all.Go(func() {
			if right, err := read(t.Context(), reader, alice.Token, bob.Token); err != nil || !right {
				t.Errorf("a read over an old connection returns the data of the new primary: %v, error %v; want true", right, err)
			}
		})
	}
	all.Wait()
}

func TestReadIsAnsweredByWritableNode(t *testing.T) {
	for name, read := range readRequests {
		t.Run(name, func(t *testing.T) {
			p := stores.NewRedisPair(t)
			checkReader(t, "redis://"+p.Link().Addr(), func() (string, func() bool) {
				p.Failover()
				return "redis://" + p.Primary().Addr, func() bool { return true }
			}, 2, read)
		})
	}
}

func TestReadBehindSentinelIsAnsweredByWritableNode(t *testing.T) {
	for name, read := range readRequests {
		switch name {
		case "CHECK of the old token", "SCAN":
			t.Run(name, func(t *testing.T) {
				s := stores.RedisSentinel(t)
				url := "redis+sentinel://" + strings.Join(s.SentinelAddrs, ",") + "/" + s.MasterName
				checkReader(t, url, func() (string, func() bool) {
					next := sentinelFailover(t, s).Addr
					return "redis://" + next, func() bool { return named(t, s) == next }
				}, math.MaxInt, read)
			})
		}
	}
}

// sentinelFailover makes the sentinels promote the replica. It also demotes the old primary itself:
// if the sentinels demoted it, they would close its connections. It returns the new primary, which
// the sentinels may not name yet.
func sentinelFailover(t *testing.T, s *stores.Sentinel) *stores.Server {
	t.Helper()
	old, next := s.Nodes[0], s.Nodes[1]
	ask := func(n *stores.Server, args ...any) any {
		t.Helper()
		c := redis.NewClient(&redis.Options{Addr: n.Addr})
		defer c.Close()
		v, err := c.Do(t.Context(), args...).Result()
		must(t, err)
		return v
	}
	until(t, "the replica has caught up", func() bool {
		offset := func(n *stores.Server) string {
			_, rest, _ := strings.Cut(ask(n, "INFO", "replication").(string), "master_repl_offset:")
			text, _, _ := strings.Cut(rest, "\r")
			return text
		}
		return offset(old) == offset(next)
	})
	ask(s.Sentinels[0], "SENTINEL", "FAILOVER", s.MasterName)
	until(t, "the replica is promoted", func() bool {
		return strings.Contains(ask(next, "INFO", "replication").(string), "role:master")
	})
	ask(old, "REPLICAOF", "127.0.0.1", "1") // nothing listens on that port
	return next
}

// named returns the primary that all sentinels name, "" if they differ.
func named(t *testing.T, s *stores.Sentinel) string {
	all := ""
	for _, addr := range s.SentinelAddrs {
		c := redis.NewSentinelClient(&redis.Options{Addr: addr})
		got := strings.Join(c.GetMasterAddrByName(t.Context(), s.MasterName).Val(), ":")
		_ = c.Close()
		if all != "" && got != all {
			return ""
		}
		all = got
	}
	return all
}

// In a cluster, the master must refuse SCAN too, though SCAN has no key.
func TestPrimaryThatRefusesWritesAnswersNoReads(t *testing.T) {
	single, nodes := stores.Redis(t), stores.RedisCluster(t)
	for url, addr := range map[string]string{
		"redis://" + single.Addr:                            single.Addr,
		"redis+cluster://" + strings.Join(nodes.Addrs, ","): nodes.Master("simba:{s}").Addr,
	} {
		b := serve(t, url, noNotices{})
		a, _ := acquire(t, b, "s", "alice", time.Minute, nil)
		c := clientOf(t, addr)
		for _, set := range []string{"5", "0"} {
			must(t, c.ConfigSet(t.Context(), "min-replicas-to-write", set).Err())
			for name, read := range readRequests {
				_, err := read(t.Context(), b, a.Token, 0)
				if refused := unavailable(t, err); refused != (set == "5") {
					t.Errorf("%s at %s with min-replicas-to-write %s: %v; want an UnavailableError only with 5", name, url, set, err)
				}
			}
		}
	}
	must(t, clientOf(t, single.Addr).ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	mentions(t, refused(t, "redis://"+single.Addr), single.Addr, "NOREPLICAS")
}

func TestFailoversThatLeaveOldConnectionsMakeNoTwoOwners(t *testing.T) {
	p := stores.NewRedisPair(t)
	open := opener("redis://" + p.Link().Addr())
	e := conformance.Engine{Name: "redis", Shared: true, Timeout: suiteTimeout, Open: open}
	conformance.Hammer(t, e, 6*time.Second, 500*time.Millisecond, func() {
		p.Failover()
		p.Rejoin()
	})
}

func TestReadChangesNothingAtRedis(t *testing.T) {
	p := stores.NewRedisPair(t)
	b := serve(t, "redis://"+p.Link().Addr(), noNotices{})
	a, _ := acquire(t, b, "s", "alice", time.Minute, nil)
	c := clientOf(t, p.Primary().Addr)
	size := func() string {
		for line := range strings.Lines(c.Info(t.Context(), "persistence").Val()) {
			if n, ok := strings.CutPrefix(line, "aof_current_size:"); ok {
				return n
			}
		}
		return ""
	}
	keys, before := c.DBSize(t.Context()).Val(), size()
	for range 100 {
		for _, name := range []string{"CHECK of the old token", "OWNER", "QUEUE", "SCAN", "SCAN HELD CONTENDED", "ACQUIRE NOQUEUE"} {
			if _, err := readRequests[name](t.Context(), b, a.Token, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if after, keysAfter := size(), c.DBSize(t.Context()).Val(); before == "" || after != before || keysAfter != keys {
		t.Errorf("the reads changed Redis: before, the append only file had %q bytes and there were %d keys, then %q and %d",
			before, keys, after, keysAfter)
	}
}

func awaitGrant(t *testing.T, w wakeChan, ticket simba.Ticket) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		select {
		case <-w.woken:
		case <-time.After(need.Hang):
			t.Fatal("the waiter was not woken")
		}
		if o, err := ticket.End(simba.EndWoken); err != nil {
			t.Fatal(err)
		} else if o.Status == simba.StatusAcquired {
			return time.Since(start)
		}
	}
}

// checkSubscriber checks a server that sends no requests. A failover leaves the server's
// connections at the old primary. The server's waiters and subscribers must be served all the same.
func checkSubscriber(t *testing.T, url string, failover func()) {
	e := newListener()
	waits, before := serve(t, url, e), serve(t, url, noNotices{})
	acquire(t, before, "m", "alice", 10*time.Minute, nil)
	e.subscribe(t, waits, "simba:{n}")
	w := wakeChan{make(chan struct{}, 1)}
	_, ticket := acquire(t, waits, "m", "bob", 10*time.Minute, w)
	failover()
	failed := time.Now()

	other := serve(t, url, noNotices{})
	release(t, other, "m", "alice")
	if took := awaitGrant(t, w, ticket); took > need.AtMost(recovery) {
		t.Errorf("the waiter got the mutex after %v, want at most %v after the failover and the release", took, recovery)
	}
	time.Sleep(time.Until(failed.Add(recovery)))
	acquire(t, other, "n", "alice", 10*time.Minute, nil)
	e.receive(t, "simba:{n}", is("acquired@@alice"))
	_, ticket = acquire(t, waits, "n", "bob", 10*time.Minute, w)
	release(t, other, "n", "alice")
	if took := awaitGrant(t, w, ticket); took > need.AtMost(atOnce) {
		t.Errorf("the waiter got the mutex after %v, want at most %v after the release", took, atOnce)
	}
}

func TestWaitersAndSubscribersFollowTheWritableNode(t *testing.T) {
	p := stores.NewRedisPair(t)
	checkSubscriber(t, "redis://"+p.Link().Addr(), p.Failover)
}

func TestWaitersAndSubscribersBehindSentinelFollowTheWritableNode(t *testing.T) {
	s := stores.RedisSentinel(t)
	url := "redis+sentinel://" + strings.Join(s.SentinelAddrs, ",") + "/" + s.MasterName
	checkSubscriber(t, url, func() {
		sentinelFailover(t, s)
		until(t, "the sentinels name the new primary", func() bool { return named(t, s) == s.Primary().Addr })
	})
}

// The old node is not demoted, so it stays writable. Only the server's commands go to another node.
func TestSubscriberLeavesNodeThatCommandsDoNotGoTo(t *testing.T) {
	one, two := stores.Redis(t), stores.Redis(t)
	link := stores.NewLink(t, one.Addr)
	b := serve(t, "redis://"+link.Addr(), noNotices{})
	link.Retarget(two.Addr)
	c := clientOf(t, one.Addr)
	must(t, c.ClientKillByFilter(t.Context(), "TYPE", "normal").Err())
	d := clientOf(t, two.Addr)
	moved, channel := time.Now(), b.subs.serverChannel()
	until(t, "the subscriber has moved", func() bool {
		return c.PubSubNumSub(t.Context(), channel).Val()[channel] == 0 &&
			d.PubSubNumSub(t.Context(), channel).Val()[channel] == 1
	})
	if took := time.Since(moved); took > need.AtMost(recovery) {
		t.Errorf("the subscriber moved to the other node after %v, want at most %v", took, recovery)
	}
}
