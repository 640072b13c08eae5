package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Orders of replies, messages and requests that happen on a busy server, made by hand.

func TestOutcomeHasWindowsOfTheGrantedTicket(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "c", time.Second, newWaiter())
	// The same contender waits by a second request, which never reaches Redis.
	second, _ := b.enter(simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: newWaiter()})
	release(t, b, "m", "a")
	o, err := second.End(simba.EndWoken)
	if err != nil || o.Status == simba.StatusAcquired && o.TTL > time.Second {
		t.Errorf("the outcome is %+v, %v; Redis has %+v", o, err, owner(t, b, "m"))
	}
}

func TestLateReplyPutsOffNoReconciliation(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	late := runScript(t, b, "m", releaseScript, "a", "0", "", "")
	acquire(t, b, "m", "x", time.Minute, nil)
	acquire(t, b, "m", "c", time.Minute, newWaiter())
	awaitIdle(t, b, "m", "c")
	b.applyReply("m", late)
	b.schedule.mu.Lock()
	defer b.schedule.mu.Unlock()
	if x := b.schedule.byMutex["m"]; x == nil || time.Until(x.at) > reconcileInterval {
		t.Errorf("c waits, and the next reconciliation is %+v", x)
	}
}

func TestHistoryWaitsForLateReply(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	late := runScript(t, b, "m", releaseScript, "a", "0", "", "")
	acquire(t, b, "m", "c", time.Minute, nil)
	time.AfterFunc(replyReorderWindow/5, func() { b.applyReply("m", late) })
	events, _, err := b.History(t.Context(), simba.HistoryRequest{Mutex: "m"})
	if err != nil || len(events) != 3 || events[1].Owner != "a" || events[2].Owner != "c" {
		t.Errorf("%+v %v", events, err)
	}
}

// Nobody waits at this server. A polling waiter is in the queue at Redis, and relies on the
// reconciliation that the request of the owner before it scheduled.
func TestOlderReplyPutsOffNoReconciliation(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	next := func() time.Duration {
		b.schedule.mu.Lock()
		defer b.schedule.mu.Unlock()
		if x := b.schedule.byMutex["m"]; x != nil {
			return time.Until(x.at)
		}
		return 0
	}
	guard := func(ttl time.Duration, after *reply) (st *reply) {
		until(t, "the clock of Redis goes on", func() bool {
			st = runScript(t, b, "m", guardScript, "a", ttl.Milliseconds(), int64(0), "0")
			return after == nil || st.now > after.now
		})
		return st
	}
	acquired := runScript(t, b, "m", acquireScript, "z", int64(60_000), int64(0), "noqueue", "", "")
	released := runScript(t, b, "m", releaseScript, "z", "0", "", "")
	runScript(t, b, "m", acquireScript, "a", int64(60_000), int64(0), "noqueue", "", "")
	hour := guard(time.Hour, released)
	minute := guard(time.Minute, hour)
	day := guard(24*time.Hour, minute)

	b.applyReply("m", minute)
	b.applyReply("m", hour)
	if d := next(); d == 0 || d > time.Minute+time.Second {
		t.Errorf("put off to %v by an older reply", d)
	}
	b.applyReply("m", released)
	if d := next(); d == 0 {
		t.Error("cancelled by an older release")
	}
	b.applyReply("m", acquired)
	b.applyReply("m", day)
	if d := next(); d < 23*time.Hour {
		t.Errorf("scheduled in %v, though the lease was renewed", d)
	}
}

func TestOrphanIsEndedWhateverElseHappensToItsMutex(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Hour, nil)
	b.addOrphan("m", orphan{"c", "77", time.Now().Add(time.Hour)})
	acquire(t, b, "m", "d", time.Minute, nil) // a poll
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		b.mu.Lock()
		left := len(b.orphans["m"])
		b.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the orphan is still there")
		}
	}
}

func TestGrantDuringTimeoutIsTheOutcome(t *testing.T) {
	s := stores.Redis(t)
	// End waits during many requests.
	b := openSoon(t, Options{URL: "redis://" + s.Addr, Notices: newListener(), Timeout: time.Minute})
	defer b.Close()
	acquire(t, b, "m", "a", time.Minute, nil)
	_, ticket := acquire(t, b, "m", "c", time.Minute, newWaiter())
	awaitIdle(t, b, "m", "c")
	p := entryOf(ticket.(waitTicket).Ticket)
	b.mu.Lock()
	p.restoring++ // as if the mutex were being reconciled: End must wait for that
	b.mu.Unlock()
	ended := make(chan simba.Outcome)
	go func() {
		o, err := ticket.End(simba.EndTimeout)
		if err != nil {
			t.Error(err)
		}
		ended <- o
	}()
	until(t, "End waits", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return p.idle != nil
	})
	b.applyReply("m", runScript(t, b, "m", releaseScript, "a", "0", "", ""))
	mustStay(t, b, "m", "c")
	b.mu.Lock()
	p.restoring--
	close(p.idle)
	p.idle = nil
	b.mu.Unlock()
	if o := <-ended; o.Status != simba.StatusAcquired {
		t.Errorf("%+v; Redis has %+v", o, owner(t, b, "m"))
	}
	if o := owner(t, b, "m"); o.Owner != "c" {
		t.Errorf("then %+v", o)
	}
}

func TestLateMessageHandsOffNoAcknowledgedGrant(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	_, ticket := acquire(t, b, "m", "c", time.Minute, newWaiter())
	awaitIdle(t, b, "m", "c")
	reply := runScript(t, b, "m", releaseScript, "a", "0", "", "")
	o, err := ticket.End(simba.EndTimeout)
	if err != nil || o.Status != simba.StatusAcquired {
		t.Fatalf("%+v %v", o, err)
	}
	b.applyReply("m", reply)
	// The message may arrive after the server has forgotten the grant.
	b.mu.Lock()
	b.delivered, b.acknowledged = recentSet[delivery]{}, recentSet[string]{}
	b.mu.Unlock()
	b.confirmGrant(t.Context(), "m", grant{contender: "c", token: o.Token, ticket: entryOf(ticket.(waitTicket).Ticket).ticket})
	mustStay(t, b, "m", "c")
}

func TestLateReplyOfEarlierWaitEndsNoLaterWait(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	_, first := acquire(t, b, "m", "c", time.Minute, newWaiter())
	awaitIdle(t, b, "m", "c")
	late := runScript(t, b, "m", releaseScript, "a", "0", "", "")
	if o, err := first.End(simba.EndTimeout); err != nil || o.Status != simba.StatusAcquired {
		t.Fatalf("%+v %v", o, err)
	}
	release(t, b, "m", "c")
	acquire(t, b, "m", "a", time.Minute, nil)
	w := newWaiter()
	_, second := acquire(t, b, "m", "c", time.Minute, w)
	awaitIdle(t, b, "m", "c")
	b.applyReply("m", late)
	if t2 := b.waiters.Find("m", "c"); t2 != second.(waitTicket).Ticket {
		t.Fatalf("%v waits, not %v", t2, second)
	}
	release(t, b, "m", "a")
	w.await(t)
	if o, err := second.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
		t.Errorf("%+v %v", o, err)
	}
}

func TestWaiterIsGrantedThoughItsEarlierRequestRanLater(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	_, first := b.enter(simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: newWaiter()})
	w := newWaiter()
	_, second := acquire(t, b, "m", "c", time.Minute, w)
	awaitIdle(t, b, "m", "c")
	runScript(t, b, "m", acquireScript, "c", int64(60_000), int64(0), "wait", "", first.ticket)
	release(t, b, "m", "a")
	w.await(t)
	o, err := second.End(simba.EndWoken)
	if err != nil || o.Status != simba.StatusAcquired {
		t.Errorf("%+v %v", o, err)
	}
	if o.TTL < time.Minute-reconcileInterval+time.Second {
		t.Errorf("only the regular reconciliation has found the grant: %v are left", o.TTL)
	}
}

func TestGrantOfEarlierWaitIsHandedOffIfLaterRequestFails(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "c", time.Minute, wakeFunc(func() {
		release(t, b, "m", "a")
		s.Pause()
	}))
	awaitIdle(t, b, "m", "c")
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	_, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: newWaiter()})
	s.Resume()
	if lost := (*simba.UnavailableError)(nil); !errors.As(err, &lost) {
		t.Fatalf("the later wait: %v", err)
	}
	until(t, "nobody owns the mutex", func() bool {
		o, _, err := b.Owner(t.Context(), "m")
		return err == nil && o.Owner == ""
	})
}

func TestReplyThatTheMutexIsOwnedWinsOverMessages(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "c", time.Minute, wakeFunc(func() {
		release(t, b, "m", "c") // also ends the later wait
		release(t, b, "m", "a")
	}))
	awaitIdle(t, b, "m", "c")
	o, ticket := acquire(t, b, "m", "c", time.Minute, newWaiter())
	if o.Status == simba.StatusWaiting {
		o, _ = ticket.End(simba.EndWoken)
	}
	if o.Status != simba.StatusAcquired {
		t.Errorf("the outcome is %+v; Redis has %+v", o, owner(t, b, "m"))
	}
}

func TestReplyGrantsNoWaitThatBeganLater(t *testing.T) {
	s := stores.Redis(t)
	e := &hook{listener: newListener()}
	b := serve(t, "redis://"+s.Addr, e)
	var second *proxy.Ticket
	w := newWaiter()
	e.first = func() { // while the reply is being applied
		runScript(t, b, "m", releaseScript, "c", "0", "", "")
		runScript(t, b, "m", acquireScript, "a", int64(60_000), int64(0), "noqueue", "", "")
		second, _ = b.enter(simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: w})
		runScript(t, b, "m", acquireScript, "c", int64(60_000), int64(0), "wait", "", entryOf(second).ticket)
	}
	acquire(t, b, "m", "c", time.Minute, nil)
	release(t, b, "m", "a")
	w.await(t)
	if o, err := second.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
		t.Errorf("%+v %v", o, err)
	}
}

// wakeFunc is a waiter that calls a function when it is woken. Here that is when a later request of
// its contender has replaced it, and has not yet reached Redis.
type wakeFunc func()

func (f wakeFunc) Wake() { f() }

// hook is a listener that calls first at the first notice. That function must not cause a notice.
type hook struct {
	*listener
	once  sync.Once
	first func()
}

func (h *hook) Publish(channel, payload string) int {
	h.once.Do(h.first)
	return h.listener.Publish(channel, payload)
}

func TestWaitThatEndedWithoutTheMutexGetsNoGrant(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	_, ticket := acquire(t, b, "m", "c", time.Minute, newWaiter())
	awaitIdle(t, b, "m", "c")
	b.waiters.Grant("m", "c", proxy.Grant{Token: 1, Confirm: true}) // of a tenure that has ended
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusQueued {
		t.Fatalf("%+v %v", o, err)
	}
	release(t, b, "m", "a")
	if o := owner(t, b, "m"); o.Owner != "" {
		t.Errorf("nobody waits, and the owner is %+v", o)
	}
}

func TestAbandonHandsOffGrantFoundByEnd(t *testing.T) {
	for _, why := range []simba.EndReason{simba.EndTimeout, simba.EndLeft} {
		s := stores.Redis(t)
		b := serve(t, "redis://"+s.Addr, newListener())
		acquire(t, b, "m", "a", time.Minute, nil)
		_, ticket := acquire(t, b, "m", "c", time.Minute, newWaiter())
		awaitIdle(t, b, "m", "c")
		late := runScript(t, b, "m", releaseScript, "a", "0", "", "")
		if o, err := ticket.End(why); err != nil || o.Status != simba.StatusAcquired {
			t.Fatalf("%+v %v", o, err)
		}
		b.applyReply("m", late)
		if _, err := ticket.Abandon(); err != nil {
			t.Fatal(err)
		}
		if o := owner(t, b, "m"); o.Owner != "" {
			t.Errorf("after %d: %+v", why, o)
		}
	}
}

// The server has not received the grant, and finds by reconciling that the tenure has ended.
func TestUnreceivedTenureEndsTheWaitUnlessItExpired(t *testing.T) {
	s := stores.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	b := serve(t, "redis://"+s.Addr, newListener())
	runUnseen := func(mutex string, script *script, args ...any) { runScript(t, b, mutex, script, args...) }
	expire := func(mutex string) {
		until(t, "the lease has expired", func() bool { return owner(t, b, mutex).Owner == "" })
	}
	for name, story := range map[string]struct {
		ttl  time.Duration
		then func(mutex string)
		want simba.Status
	}{
		"broken":   {time.Minute, func(m string) { runUnseen(m, breakScript, "") }, simba.StatusTimeout},
		"released": {time.Minute, func(m string) { runUnseen(m, releaseScript, "c", "0", "", "") }, simba.StatusTimeout},
		"renewed-released": {time.Minute, func(m string) {
			runUnseen(m, guardScript, "c", int64(60_000), int64(0), "0")
			runUnseen(m, releaseScript, "c", "0", "", "")
		}, simba.StatusTimeout},
		"deleted": {time.Minute, func(m string) {
			if err := c.Del(t.Context(), simba.MutexChannel(m)).Err(); err != nil {
				t.Fatal(err)
			}
		}, simba.StatusTimeout},
		"expired": {50 * time.Millisecond, expire, simba.StatusAcquired},
		"expired-another-broken": {50 * time.Millisecond, func(m string) {
			expire(m)
			acquire(t, b, m, "d", time.Minute, nil)
			runUnseen(m, breakScript, "")
		}, simba.StatusAcquired},
		"expired-another-released": {50 * time.Millisecond, func(m string) {
			expire(m)
			acquire(t, b, m, "d", time.Minute, nil)
			runUnseen(m, releaseScript, "d", "0", "", "")
		}, simba.StatusAcquired},
	} {
		t.Run(name, func(t *testing.T) {
			for ttl := story.ttl; ; ttl *= 2 {
				mutex := fmt.Sprint(name, "-", ttl)
				acquire(t, b, mutex, "a", time.Minute, nil)
				w := newWaiter()
				_, ticket := acquire(t, b, mutex, "c", ttl, w)
				awaitIdle(t, b, mutex, "c")
				runUnseen(mutex, releaseScript, "a", "0", "", "")
				if o := owner(t, b, mutex); o.Owner != "c" && story.want == simba.StatusTimeout {
					t.Fatalf("%+v", o)
				}
				story.then(mutex)
				b.schedule.bringForward(mutex, time.Now())
				w.await(t)
				sent := time.Now()
				o, err := ticket.End(simba.EndWoken)
				if unavailable(t, err) && time.Since(sent) >= ttl && ttl < 10*time.Second {
					// The mutex was granted once more, and a busy Redis answered after that lease
					// had expired.
					continue
				}
				if err != nil || o.Status != story.want {
					t.Errorf("%+v %v", o, err)
				}
				break
			}
		})
	}
}

func TestWaiterIsQueuedOnlyIfItsServerIsReachable(t *testing.T) {
	s := stores.Redis(t)
	one := serve(t, "redis://"+s.Addr, newListener())
	two := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, one, "m", "a", time.Minute, nil)
	two.subs.all()[0].unsubscribe(two.subs.serverChannel())
	w := newWaiter()
	_, ticket := acquire(t, two, "m", "b", time.Minute, w)
	release(t, one, "m", "a")
	if o := owner(t, one, "m"); o.Owner != "b" {
		t.Errorf("b was passed over for %+v", o)
	}
	w.await(t)
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
		t.Errorf("%+v %v", o, err)
	}
}

func TestWaitersAreQueuedAgainWhenTheirServerIsReachable(t *testing.T) {
	s := stores.Redis(t)
	one := serve(t, "redis://"+s.Addr, newListener())
	two := serve(t, "redis://"+s.Addr, newListener())
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	acquire(t, one, "m", "a", time.Minute, nil)
	acquire(t, two, "m", "b", time.Minute, newWaiter())
	awaitIdle(t, two, "m", "b")
	unsubscribeReleases(two, "m")
	own := two.subs.serverChannel()
	r := two.subs.all()[0]
	r.unsubscribe(own)
	until(t, "the server has unsubscribed", func() bool { return c.PubSubNumSub(t.Context(), own).Val()[own] == 0 })
	release(t, one, "m", "a")
	acquire(t, one, "m", "x", time.Minute, nil)
	if list, _, err := one.Queue(t.Context(), "m", 10); err != nil || len(list) != 0 {
		t.Fatalf("%v %v", list, err)
	}
	until(t, "the mutex is not being reconciled, and its time may be put off", func() bool {
		two.schedule.mu.Lock()
		defer two.schedule.mu.Unlock()
		x := two.schedule.byMutex["m"]
		if x != nil {
			x.asOf = 0
		}
		return x != nil
	})
	two.schedule.set("m", time.Now().Add(time.Hour), 1)
	r.subscribe(own, false)
	until(t, "b is queued again", func() bool {
		list, _, err := one.Queue(t.Context(), "m", 10)
		return err == nil && len(list) == 1 && list[0].Blocked
	})
}

// awaitIdle waits until the server has done everything for a waiter that has just been queued.
func awaitIdle(t *testing.T, b *Backend, mutex, contender string) {
	t.Helper()
	for _, channel := range []string{simba.MutexChannel(mutex), contenderGlob} {
		until(t, channel+" is confirmed", func() bool { return b.subs.subscriberForChannel(channel).confirmed(channel) })
	}
	b.schedule.bringForward(mutex, time.Now())
	until(t, "its mutex was reconciled", func() bool {
		b.schedule.mu.Lock()
		x := b.schedule.byMutex[mutex]
		b.schedule.mu.Unlock()
		return x != nil && time.Until(x.at) > nextReconcile
	})
	until(t, "no mutex is being reconciled", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.reconciling) == 0
	})
}

// unsubscribeReleases has the server receive no notice of a mutex' release.
func unsubscribeReleases(b *Backend, mutex string) {
	for _, channel := range []string{simba.MutexChannel(mutex), contenderGlob} {
		b.subs.subscriberForChannel(channel).unsubscribe(channel)
	}
}

// mustStay fails the test if the mutex gets another owner during many reads.
func mustStay(t *testing.T, b *Backend, mutex, contender string) {
	t.Helper()
	checks := 0
	until(t, "the owner was read often enough", func() bool {
		if o := owner(t, b, mutex); o.Owner != contender {
			t.Fatalf("the owner should be %s: %+v", contender, o)
		}
		checks++
		return checks == 50
	})
}

func TestCancelRemovesMutexFromSchedule(t *testing.T) {
	s := newSchedule()
	for _, m := range []string{"x", "y", "z"} {
		s.set(m, time.Now().Add(time.Hour), 1)
	}
	s.cancel("x", 1)
	s.cancel("z", 2)
	s.cancel("z", 2)
	s.cancel("y", 0)
	if len(s.heap) != 1 || len(s.byMutex) != 1 || s.heap[0].mutex != "y" || s.heap[0].index != 0 {
		t.Errorf("%d in the heap, %d by mutex", len(s.heap), len(s.byMutex))
	}
}

// runScript runs a script as ask does, but does not apply the reply.
func runScript(t *testing.T, b *Backend, mutex string, s *script, args ...any) *reply {
	t.Helper()
	sent := time.Now()
	reply, err := b.up.run(context.Background(), simba.MutexChannel(mutex), s, s.command(mutex, b.header(), args...))
	if err != nil {
		t.Fatal(err)
	}
	st, err := parseReply(mutex, s, args, reply)
	if err != nil {
		t.Fatal(err)
	}
	st.sent = sent
	return st
}
