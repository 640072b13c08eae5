package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/leaks"
	"github.com/simba-resp/simba-resp/tests/need"
)

func TestMain(m *testing.M) { leaks.Exit(m.Run()) }

// nodeWithoutScripts answers as a node that lacks all scripts, and whose first slot moves away
// between NOSCRIPT and EVAL.
type nodeWithoutScripts struct{}

func (nodeWithoutScripts) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for i, cmd := range cmds {
			switch {
			case cmd.Name() == "evalsha":
				cmd.SetErr(redisError("NOSCRIPT No matching script"))
			case i == 0:
				cmd.SetErr(redisError("MOVED 1 127.0.0.1:1"))
			default:
				cmd.(*redis.Cmd).SetVal("done")
			}
		}
		return cmds[0].Err()
	}
}

func (nodeWithoutScripts) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (nodeWithoutScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func TestScriptIsLoadedThoughAnotherRequestForItIsRefused(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	c.AddHook(nodeWithoutScripts{})
	p := &pipeline{client: c}
	var batch []*request
	for range 3 {
		batch = append(batch, &request{script: queueScript, args: queueScript.command("m", [6]any{}), done: make(chan struct{})})
	}
	p.send(t.Context(), batch)
	if moved := batch[0].err; !redis.HasErrorPrefix(moved, "MOVED") || batch[1].err != nil || batch[2].err != nil {
		t.Errorf("the errors of the batch are %v, %v and %v; want MOVED for the first one only", moved, batch[1].err, batch[2].err)
	}
}

func TestWaitersAreQueuedAgainAfterFlushAll(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	c := clientOf(t, s.Addr)
	acquire(t, b, "m", "a", time.Minute, nil)
	first, ticket := waits(t, b, "m", "first")
	second, later := waits(t, b, "m", "second")
	must(t, c.FlushAll(t.Context()).Err())
	granted(t, first, ticket) // within reconcileInterval
	release(t, b, "m", "first")
	granted(t, second, later)
}

// eventually retries an ACQUIRE until the store answers again.
func eventually(t *testing.T, b *Backend, mutex, contender string) simba.Outcome {
	t.Helper()
	var o simba.Outcome
	until(t, "the store answers again", func() bool {
		var err error
		o, _, err = b.Acquire(t.Context(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: time.Minute})
		if lost := (*simba.UnavailableError)(nil); err != nil && !errors.As(err, &lost) {
			t.Fatal(err)
		}
		return err == nil && o.Status != simba.StatusQueued
	})
	return o
}

// The primary is killed while a contender waits. The server must hand off to that contender later.
func TestWaitersAreServedAfterFailover(t *testing.T) {
	behind, nodes := stores.RedisSentinel(t), stores.RedisCluster(t)
	for url, primary := range map[string]*stores.Server{
		"redis+sentinel://" + strings.Join(behind.SentinelAddrs, ",") + "/" + behind.MasterName: behind.Primary(),
		"redis+cluster://" + strings.Join(nodes.Addrs, ","):                                     nodes.Master("simba:{m}"),
	} {
		one, two := serve(t, url, newListener()), serve(t, url, newListener())
		before, _ := acquire(t, one, "m", "a", time.Minute, nil)
		w, ticket := waits(t, two, "m", "w")
		primary.Kill()
		if o := eventually(t, one, "m", "a"); o.Token < before.Token {
			t.Errorf("%s: ACQUIRE of a before the failover: %+v, after it: %+v; want no smaller token", url, before, o)
		}
		until(t, "the waiter is queued again", func() bool {
			list, _, err := one.Queue(t.Context(), "m", 10)
			return err == nil && len(list) == 1 && list[0].Blocked
		})
		release(t, one, "m", "a")
		if o := granted(t, w, ticket); o.Token <= before.Token {
			t.Errorf("%s: the waiter after the failover: %+v; want a token above %d", url, o, before.Token)
		}
	}
}

// The reply of reconcile.lua may overtake an earlier reply of confirm.lua.
func TestReconcileBeforeConfirmationRecordsHandoff(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	a, _ := acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "b", time.Minute, newWaiter())
	b.Events.Record(simba.Event{Kind: simba.EventReleased, Mutex: "m", Owner: "a", Token: a.Token})
	b.recordOwner("m", &reply{status: "ok", owner: "b", token: a.Token + 1})
	if last, _ := b.Events.Last("m"); last.Owner != "b" || last.Reason != "handoff" {
		t.Errorf("the last event of the log: %+v; want b with the reason handoff", last)
	}
}

func TestCrashOfSyncingRedisMakesNoTwoOwners(t *testing.T) {
	s := stores.Redis(t, "--appendfsync", "always")
	open := opener("redis://" + s.Addr)
	e := conformance.Engine{Name: "redis", Shared: true, Timeout: suiteTimeout, Open: open}
	conformance.Hammer(t, e, 6*time.Second, 700*time.Millisecond, func() {
		s.Kill()
		s.Start()
	})
}

// The record names only the last grant. Here that grant is c's, so the server learns from the hash
// of ended tickets that b's tenure has ended.
func TestWaiterWhoseTenureWasBrokenDuringOutageWaitsNoMore(t *testing.T) {
	s := stores.Redis(t)
	link := stores.NewLink(t, s.Addr)
	one, two := serve(t, "redis://"+link.Addr(), noNotices{}), serve(t, "redis://"+s.Addr, noNotices{})
	acquire(t, two, "m", "a", time.Minute, nil)
	w, ticket := waits(t, one, "m", "b")
	link.Blackhole()
	release(t, two, "m", "a")
	acquire(t, two, "m", "c", time.Minute, newWaiter())
	if done, _, err := two.Break(t.Context(), "m", ""); err != nil || !done {
		t.Fatalf("BREAK of b's tenure: %v %v; want true", done, err)
	}
	mustOwn(t, two, "m", "c")
	link.Heal()
	w.await(t)
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusTimeout || o.Position != 0 {
		t.Errorf("End of b after the outage: %+v %v; want timeout without a position", o, err)
	}
	if n, err := clientOf(t, s.Addr).Exists(t.Context(), "simba:{m}:ended").Result(); err != nil || n != 0 {
		t.Errorf("the record of the ended tenure is left in Redis: %v", err)
	}
}

func TestWaiterWhoseServerSeemedDeadWaitsOn(t *testing.T) {
	s := stores.Redis(t)
	link := stores.NewLink(t, s.Addr)
	one, two := serve(t, "redis://"+link.Addr(), noNotices{}), serve(t, "redis://"+s.Addr, noNotices{})
	acquire(t, two, "m", "a", time.Minute, nil)
	w, ticket := waits(t, one, "m", "b")
	link.Blackhole()
	release(t, two, "m", "a")
	mustOwn(t, two, "m", "b")
	link.Refuse()
	until(t, "b's tenure is revoked", func() bool {
		o, _ := acquire(t, two, "m", "c", time.Minute, nil)
		return o.Status == simba.StatusAcquired
	})
	release(t, two, "m", "c")
	link.Heal()
	granted(t, w, ticket)
}

func TestRequestsFailAtOnceWhileRedisIsAway(t *testing.T) {
	s := stores.Redis(t)
	link := stores.NewLink(t, s.Addr)
	b := serve(t, "redis://"+link.Addr(), noNotices{})
	acquire(t, b, "m", "a", time.Minute, nil)
	link.Blackhole()
	if _, _, err := b.Owner(t.Context(), "m"); err == nil {
		t.Error("OWNER without an answer succeeded")
	}
	until(t, "two pings have failed", func() bool { return b.Away() != nil })
	if _, _, err := b.Owner(t.Context(), "m"); err != b.Away() {
		t.Errorf("OWNER: %v; want the error of the pings", err)
	}
	link.Heal()
	until(t, "Redis is back", func() bool { return b.Away() == nil })
	mustOwn(t, b, "m", "a")
}

// wakeChan is a simba.Waiter that may be woken more than once.
type wakeChan struct{ woken chan struct{} }

func (d wakeChan) Wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

func TestCrashOfSyncingRedisLosesNothingAcknowledged(t *testing.T) {
	s := stores.Redis(t, "--appendfsync", "always", "--maxmemory-policy", "noeviction")
	e := conformance.Engine{Name: "redis", Shared: true, Timeout: suiteTimeout, Open: opener("redis://" + s.Addr)}
	conformance.Crash(t, e, 8, s.Kill, s.Start)
}

// The server uses its estimate of Redis' clock only for a script's deadline. If the estimate is
// behind, the script does nothing. Then the server corrects the estimate and sends the script
// again. The windows of a lease follow Redis' own clock.
func TestWrongClockEstimateMovesNoLease(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	p := b.up.pipeline(b.up.client)
	for i, wrong := range []time.Duration{time.Hour, -time.Hour} {
		m := fmt.Sprint("m", i)
		misestimate := func() { p.clock.Learn(time.Now().Add(wrong).UnixMilli(), time.Now(), time.Now()) }
		const ttl = 10 * time.Minute
		keeps := func(contender string, since time.Time) {
			t.Helper()
			misestimate()
			o := owner(t, b, m)
			if least := ttl - time.Since(since) - 10*time.Millisecond; o.Owner != contender || o.TTL < least || o.TTL > ttl {
				t.Errorf("clock estimate off by %v: OWNER %+v; want %s with at least %v left", wrong, o, contender, least)
			}
		}
		misestimate()
		sent := time.Now()
		a, _ := acquire(t, b, m, "a", ttl, nil)
		if a.Status != simba.StatusAcquired {
			t.Fatalf("ACQUIRE: %+v; want acquired", a)
		}
		keeps("a", sent)
		misestimate()
		sent = time.Now()
		if o, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: m, Contender: "a", TTL: ttl}); err != nil || o.Status != simba.StatusRenewed || o.Token != a.Token {
			t.Errorf("GUARD with a wrong clock estimate: %+v, %v; want renewed", o, err)
		}
		keeps("a", sent)
		w := newWaiter()
		misestimate()
		_, ticket := acquire(t, b, m, "b", ttl, w)
		misestimate()
		sent = time.Now()
		if !release(t, b, m, "a") {
			t.Error("RELEASE of a returned 0, want 1")
		}
		granted(t, w, ticket)
		keeps("b", sent)
	}
}

// At the stuck node, each reconciliation takes the whole timeout of a request. Far more
// reconciliations are due than may run at a time. Mutexes of other nodes must not wait for them.
func TestStuckNodeDelaysNoGrantAtOtherNodes(t *testing.T) {
	c := stores.RedisCluster(t, "--cluster-node-timeout", "60000") // no failover in the test
	url := "redis+cluster://" + strings.Join(c.Addrs, ",")
	b, other := serve(t, url, noNotices{}), serve(t, url, noNotices{})
	bad := c.Nodes[0]
	var there, elsewhere []string
	for i := 0; len(there) < 6*maxBackground || len(elsewhere) < 10; i++ {
		m := fmt.Sprint("m", i)
		if c.Master("simba:{"+m+"}") == bad {
			there = append(there, m)
		} else if len(elsewhere) < 10 {
			elsewhere = append(elsewhere, m)
		}
	}
	waiters := make(map[string]*waiter)
	for _, m := range append(there, elsewhere...) {
		acquire(t, other, m, "a", time.Minute, nil)
		waiters[m] = newWaiter()
		acquire(t, b, m, "w", time.Minute, waiters[m])
	}
	bad.Pause()
	defer bad.Resume()
	for _, m := range there {
		b.schedule.bringForward(time.Now(), m)
	}
	until(t, "reconciliations at the node pile up", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.reconciling) > 5*maxBackground
	})
	for _, m := range elsewhere {
		start := time.Now()
		release(t, other, m, "a")
		waiters[m].await(t)
		// A grant that waits for the reconciliations would take five timeouts.
		if took := time.Since(start); took > need.AtMost(3*b.timeout) {
			t.Errorf("the waiter for %s was granted it after %v, want less than three timeouts", m, took)
		}
	}
}
