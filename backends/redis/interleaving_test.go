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

// Orders of events that a busy server meets sooner or later, made by hand.

func TestOutcomeHasWindowsOfTheGrantedTicket(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "c", time.Second, newWaiter())
	// The same contender blocks again, and that request never reaches Redis.
	second, _ := b.enter(simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: newWaiter()})
	release(t, b, "m", "a")
	o, err := second.End(simba.EndWoken)
	if err != nil || o.Status == simba.StatusAcquired && o.TTL > time.Second {
		t.Errorf("told %+v, %v; Redis has %+v", o, err, owner(t, b, "m"))
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
		t.Errorf("c waits, and the next look is %+v", x)
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

// Nobody waits at this server then: who polls waits in Redis, and relies on the look that was booked by whom it was granted after.
func TestOlderReplyPutsOffNoReconciliation(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	look := func() time.Duration {
		b.schedule.mu.Lock()
		defer b.schedule.mu.Unlock()
		if x := b.schedule.byMutex["m"]; x != nil {
			return time.Until(x.at)
		}
		return 0
	}
	guard := func(ttl time.Duration, after *state) (st *state) {
		until(t, "the clock of Redis goes on", func() bool {
			st = runScript(t, b, "m", guardScript, "a", ttl.Milliseconds(), int64(0), "0")
			return after == nil || st.now > after.now
		})
		return st
	}
	acquired := runScript(t, b, "m", acquireScript, "z", int64(60_000), int64(0), "busy", "", "")
	released := runScript(t, b, "m", releaseScript, "z", "0", "", "")
	runScript(t, b, "m", acquireScript, "a", int64(60_000), int64(0), "busy", "", "")
	hour := guard(time.Hour, released)
	minute := guard(time.Minute, hour)
	day := guard(24*time.Hour, minute)

	b.applyReply("m", minute)
	b.applyReply("m", hour)
	if d := look(); d == 0 || d > time.Minute+time.Second {
		t.Errorf("put off to %v by what was before", d)
	}
	b.applyReply("m", released)
	if d := look(); d == 0 {
		t.Error("given up for a release that was before")
	}
	b.applyReply("m", acquired)
	b.applyReply("m", day)
	if d := look(); d < 23*time.Hour {
		t.Errorf("in %v, though the lease was renewed", d)
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
			t.Fatal("the ghost is still there")
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
	p.restoring++ // a look is under way, which End must wait for
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
	stays(t, b, "m", "c")
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
	// A message may be later than all that is remembered here.
	b.mu.Lock()
	b.delivered, b.acknowledged = recentSet[delivery]{}, recentSet[string]{}
	b.mu.Unlock()
	b.confirmGrant(t.Context(), "m", grant{contender: "c", token: o.Token, ticket: entryOf(ticket.(waitTicket).Ticket).ticket})
	stays(t, b, "m", "c")
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
		t.Fatalf("who waits is %v, not %v", t2, second)
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
		t.Errorf("only a look that comes anyway has found it: %v are left", o.TTL)
	}
}

func TestGrantOfEarlierWaitIsHandedOffIfLaterRequestFails(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "c", time.Minute, moved(func() {
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
	until(t, "nobody owns what nobody was told of", func() bool {
		o, _, err := b.Owner(t.Context(), "m")
		return err == nil && o.Owner == ""
	})
}

func TestReplyThatTheMutexIsOwnedWinsOverMessages(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "c", time.Minute, moved(func() {
		release(t, b, "m", "c") // ends the later wait as well
		release(t, b, "m", "a")
	}))
	awaitIdle(t, b, "m", "c")
	o, ticket := acquire(t, b, "m", "c", time.Minute, newWaiter())
	if o.Status == simba.StatusWaiting {
		o, _ = ticket.End(simba.EndWoken)
	}
	if o.Status != simba.StatusAcquired {
		t.Errorf("told %+v; Redis has %+v", o, owner(t, b, "m"))
	}
}

func TestReplyGrantsNoWaitThatBeganLater(t *testing.T) {
	s := stores.Redis(t)
	e := &hook{listener: newListener()}
	b := serve(t, "redis://"+s.Addr, e)
	var second *proxy.Ticket
	w := newWaiter()
	e.first = func() { // the answer is being taken in
		runScript(t, b, "m", releaseScript, "c", "0", "", "")
		runScript(t, b, "m", acquireScript, "a", int64(60_000), int64(0), "busy", "", "")
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

// moved is a waiter that acts when a later wait of its contender has taken its place, which has yet to ask Redis.
type moved func()

func (f moved) Wake() { f() }

// hook is an ear that acts when it is told something for the first time. That may do nothing that is told.
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
	b.waiters.Grant("m", "c", proxy.Grant{Token: 1, Confirm: true}) // of a tenure that is over by now
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusQueued {
		t.Fatalf("%+v %v", o, err)
	}
	release(t, b, "m", "a")
	if o := owner(t, b, "m"); o.Owner != "" {
		t.Errorf("nobody waits, and it is %+v", o)
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

// The server has yet to hear of the grant, and finds by a look that it is over.
func TestUnreceivedTenureEndsTheWaitUnlessItExpired(t *testing.T) {
	s := stores.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	b := serve(t, "redis://"+s.Addr, newListener())
	unheard := func(mutex string, script *script, args ...any) { runScript(t, b, mutex, script, args...) }
	ranOut := func(mutex string) {
		until(t, "the lease has run out", func() bool { return owner(t, b, mutex).Owner == "" })
	}
	for name, story := range map[string]struct {
		ttl  time.Duration
		then func(mutex string)
		want simba.Status
	}{
		"broken":   {time.Minute, func(m string) { unheard(m, breakScript, "") }, simba.StatusTimeout},
		"released": {time.Minute, func(m string) { unheard(m, releaseScript, "c", "0", "", "") }, simba.StatusTimeout},
		"renewed-released": {time.Minute, func(m string) {
			unheard(m, guardScript, "c", int64(60_000), int64(0), "0")
			unheard(m, releaseScript, "c", "0", "", "")
		}, simba.StatusTimeout},
		"deleted": {time.Minute, func(m string) {
			if err := c.Del(t.Context(), simba.MutexChannel(m)).Err(); err != nil {
				t.Fatal(err)
			}
		}, simba.StatusTimeout},
		"ran-out": {50 * time.Millisecond, ranOut, simba.StatusAcquired},
		"ran-out-another-broken": {50 * time.Millisecond, func(m string) {
			ranOut(m)
			acquire(t, b, m, "d", time.Minute, nil)
			unheard(m, breakScript, "")
		}, simba.StatusAcquired},
		"ran-out-another-released": {50 * time.Millisecond, func(m string) {
			ranOut(m)
			acquire(t, b, m, "d", time.Minute, nil)
			unheard(m, releaseScript, "d", "0", "", "")
		}, simba.StatusAcquired},
	} {
		t.Run(name, func(t *testing.T) {
			for ttl := story.ttl; ; ttl *= 2 {
				mutex := fmt.Sprint(name, "-", ttl)
				acquire(t, b, mutex, "a", time.Minute, nil)
				w := newWaiter()
				_, ticket := acquire(t, b, mutex, "c", ttl, w)
				awaitIdle(t, b, mutex, "c")
				unheard(mutex, releaseScript, "a", "0", "", "")
				if o := owner(t, b, mutex); o.Owner != "c" && story.want == simba.StatusTimeout {
					t.Fatalf("%+v", o)
				}
				story.then(mutex)
				b.schedule.advance(mutex, time.Now())
				w.await(t)
				asked := time.Now()
				o, err := ticket.End(simba.EndWoken)
				if unavailable(t, err) && time.Since(asked) >= ttl && ttl < 10*time.Second {
					// It was granted the mutex again, and a busy Redis answered later than that
					// lease lasts.
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
		t.Errorf("passed over for %+v", o)
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
	muteReleases(two, "m")
	own := two.subs.serverChannel()
	r := two.subs.all()[0]
	r.unsubscribe(own)
	until(t, "two is not heard", func() bool { return c.PubSubNumSub(t.Context(), own).Val()[own] == 0 })
	release(t, one, "m", "a")
	acquire(t, one, "m", "x", time.Minute, nil)
	if list, _, err := one.Queue(t.Context(), "m", 10); err != nil || len(list) != 0 {
		t.Fatalf("%v %v", list, err)
	}
	until(t, "no look is under way, and the next may be put off", func() bool {
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
	until(t, "b has its place", func() bool {
		list, _, err := one.Queue(t.Context(), "m", 10)
		return err == nil && len(list) == 1 && list[0].Blocked
	})
}

// quiet waits until nothing is done any more for a waiter that has just been queued.
func awaitIdle(t *testing.T, b *Backend, mutex, contender string) {
	t.Helper()
	for _, channel := range []string{simba.MutexChannel(mutex), contenderGlob} {
		until(t, channel+" is heard", func() bool { return b.subs.subscriberFor(channel).confirmed(channel) })
	}
	b.schedule.advance(mutex, time.Now())
	until(t, "its mutex was looked after", func() bool {
		b.schedule.mu.Lock()
		x := b.schedule.byMutex[mutex]
		b.schedule.mu.Unlock()
		return x != nil && time.Until(x.at) > reconcileInterval/2
	})
	until(t, "and not any more", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.reconciling) == 0
	})
}

// deafen has the server hear no notice of a mutex' release.
func muteReleases(b *Backend, mutex string) {
	for _, channel := range []string{simba.MutexChannel(mutex), contenderGlob} {
		b.subs.subscriberFor(channel).unsubscribe(channel)
	}
}

// stays fails if a mutex is passed on within some time, in which it could be many times.
func stays(t *testing.T, b *Backend, mutex, contender string) {
	t.Helper()
	checks := 0
	until(t, "it was seen often enough", func() bool {
		if o := owner(t, b, mutex); o.Owner != contender {
			t.Fatalf("it should be %s's: %+v", contender, o)
		}
		checks++
		return checks == 50
	})
}

func TestCancelRemovesMutexFromSchedule(t *testing.T) {
	a := newSchedule()
	for _, m := range []string{"x", "y", "z"} {
		a.set(m, time.Now().Add(time.Hour), 1)
	}
	a.cancel("x", 1)
	a.cancel("z", 2)
	a.cancel("z", 2)
	a.cancel("y", 0)
	if len(a.heap) != 1 || len(a.byMutex) != 1 || a.heap[0].mutex != "y" || a.heap[0].index != 0 {
		t.Errorf("%d in the heap, %d by mutex", len(a.heap), len(a.byMutex))
	}
}

// runScript runs a script as ask does, and leaves it to the test when its reply is
// taken in.
func runScript(t *testing.T, b *Backend, mutex string, s *script, args ...any) *state {
	t.Helper()
	sent := time.Now()
	reply, err := b.up.run(context.Background(), simba.MutexChannel(mutex), s, s.command(mutex, b.header(), args...))
	if err != nil {
		t.Fatal(err)
	}
	st, err := parseState(mutex, s, args, reply)
	if err != nil {
		t.Fatal(err)
	}
	st.sent = sent
	return st
}
