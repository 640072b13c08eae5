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
	p := &pipeline{client: c, onResult: func(*redis.Client, time.Time, error) {}}
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
	var waiters []*waiter
	var tickets []simba.Ticket
	for i := range 5 {
		w := newWaiter()
		_, ticket := acquire(t, b, "m", fmt.Sprint("w", i), time.Minute, w)
		waiters, tickets = append(waiters, w), append(tickets, ticket)
	}
	must(t, c.FlushAll(t.Context()).Err())
	for i, w := range waiters { // within reconcileInterval
		w.await(t)
		if o, err := tickets[i].End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
			t.Fatalf("waiter %d after FLUSHALL: %+v %v; want acquired", i, o, err)
		}
		release(t, b, "m", fmt.Sprint("w", i))
	}
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

func TestWaitersAreServedAfterSentinelFailover(t *testing.T) {
	s := stores.RedisSentinel(t)
	url := "redis+sentinel://" + strings.Join(s.SentinelAddrs, ",") + "/" + s.MasterName
	failOver(t, serve(t, url, newListener()), serve(t, url, newListener()), s.Primary())
}

func TestWaitersAreServedAfterClusterFailover(t *testing.T) {
	c := stores.RedisCluster(t)
	url := "redis+cluster://" + strings.Join(c.Addrs, ",")
	failOver(t, serve(t, url, newListener()), serve(t, url, newListener()), c.Master("simba:{m}"))
}

// failOver kills the primary while a contender waits, and then checks the handoff to that
// contender.
func failOver(t *testing.T, one, two *Backend, primary *stores.Server) {
	t.Helper()
	before, _ := acquire(t, one, "m", "a", time.Minute, nil)
	w := newWaiter()
	_, ticket := acquire(t, two, "m", "w", time.Minute, w)
	primary.Kill()
	if o := eventually(t, one, "m", "a"); o.Token < before.Token {
		t.Errorf("ACQUIRE of a before the failover: %+v, after it: %+v; want no smaller token", before, o)
	}
	until(t, "the waiter is queued again", func() bool {
		list, _, err := one.Queue(t.Context(), "m", 10)
		return err == nil && len(list) == 1 && list[0].Blocked
	})
	release(t, one, "m", "a")
	w.await(t)
	o, err := ticket.End(simba.EndWoken)
	if err != nil || o.Status != simba.StatusAcquired || o.Token <= before.Token {
		t.Errorf("the waiter after the failover: %+v %v; want acquired with a larger token", o, err)
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
	w := newWaiter()
	_, ticket := acquire(t, one, "m", "b", time.Minute, w)
	link.Blackhole()
	release(t, two, "m", "a")
	acquire(t, two, "m", "c", time.Minute, newWaiter())
	if done, _, err := two.Break(t.Context(), "m", ""); err != nil || !done {
		t.Fatalf("BREAK of b's tenure: %v %v; want true", done, err)
	}
	if o := owner(t, two, "m"); o.Owner != "c" {
		t.Fatalf("OWNER after b's tenure has ended: %+v; want c", o)
	}
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
	w := newWaiter()
	_, ticket := acquire(t, one, "m", "b", time.Minute, w)
	link.Blackhole()
	release(t, two, "m", "a")
	if o := owner(t, two, "m"); o.Owner != "b" {
		t.Fatalf("OWNER during the outage: %+v; want b", o)
	}
	link.Refuse()
	until(t, "b's tenure is revoked", func() bool {
		o, _ := acquire(t, two, "m", "c", time.Minute, nil)
		return o.Status == simba.StatusAcquired
	})
	release(t, two, "m", "c")
	link.Heal()
	w.await(t)
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
		t.Errorf("End of b after the outage: %+v %v; want acquired", o, err)
	}
}

// wakeChan is a simba.Waiter that may be woken more than once.
type wakeChan struct{ woken chan struct{} }

func (d wakeChan) Wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}
