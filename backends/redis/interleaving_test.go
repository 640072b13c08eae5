package redis

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// These tests produce orders of replies, messages and requests that otherwise occur only on a busy
// server.

// blocked starts a Redis and a server, at which c waits for the mutex m of a.
func blocked(t *testing.T) (b *Backend, w *waiter, ticket simba.Ticket) {
	t.Helper()
	b, w = serve(t, "redis://"+stores.Redis(t).Addr, newListener()), newWaiter()
	acquire(t, b, "m", "a", time.Minute, nil)
	_, ticket = acquire(t, b, "m", "c", time.Minute, w)
	awaitIdle(t, b, "m", "c")
	return b, w, ticket
}

func TestOrphanIsEndedWhateverElseHappensToItsMutex(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Hour, nil)
	b.addChore("m", chore{"c", "77", time.Now().Add(time.Hour)}, 0)
	acquire(t, b, "m", "d", time.Minute, nil) // a poll
	until(t, "the orphan is gone", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.chores["m"]) == 0
	})
}

func TestGrantDuringTimeoutIsTheOutcome(t *testing.T) {
	s := stores.Redis(t)
	// The timeout is long, since End waits while many requests run.
	b := openSoon(t, Options{URL: "redis://" + s.Addr, Options: proxy.Options{Notices: newListener(), Timeout: time.Minute}})
	defer b.Close()
	acquire(t, b, "m", "a", time.Minute, nil)
	_, ticket := acquire(t, b, "m", "c", time.Minute, newWaiter())
	awaitIdle(t, b, "m", "c")
	p := waitOf(ticket.(waitTicket).Ticket)
	restored := make(chan struct{})
	b.mu.Lock()
	p.restored = restored // as during a reconciliation, for which End must wait
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
		return p.restoreStopped
	})
	b.applyReply("m", runScript(t, b, "m", releaseScript, "a", "0", "", ""))
	mustStay(t, b, "m", "c")
	close(restored)
	if o := <-ended; o.Status != simba.StatusAcquired {
		t.Errorf("End(EndTimeout): %+v; want acquired; Redis has %+v", o, owner(t, b, "m"))
	}
	mustOwn(t, b, "m", "c")
}

// wakeFunc is a waiter that calls a function when it is woken. In these tests a later request of
// the same contender wakes the waiter, before that request reaches Redis.
type wakeFunc func()

func (f wakeFunc) Wake() { f() }

// hook is a listener. It calls the function onFirst when the server publishes the first notice.
// That function must not cause another notice.
type hook struct {
	*listener
	once    sync.Once
	onFirst func()
}

func (h *hook) Publish(channel, payload string) int {
	h.once.Do(h.onFirst)
	return h.listener.Publish(channel, payload)
}

func TestWaitThatEndedWithoutTheMutexGetsNoGrant(t *testing.T) {
	b, _, ticket := blocked(t)
	b.Waiters.Grant("m", "c", proxy.Grant{Token: 1, Confirm: true}) // no tenure has this token
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusQueued {
		t.Fatalf("End of the waiter: %+v %v; want queued", o, err)
	}
	release(t, b, "m", "a")
	mustOwn(t, b, "m", "")
}

// The server has not received the grant. When it reconciles, it finds that the tenure has ended.
func TestUnreceivedTenureEndsTheWaitUnlessItExpired(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
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
		"renewed-then-released": {time.Minute, func(m string) {
			runUnseen(m, guardScript, "c", int64(60_000), int64(0), "0")
			runUnseen(m, releaseScript, "c", "0", "", "")
		}, simba.StatusTimeout},
		"deleted": {time.Minute, func(m string) {
			must(t, c.Del(t.Context(), simba.MutexChannel(m)).Err())
		}, simba.StatusTimeout},
		"released-then-tenure-of-d": {time.Minute, func(m string) {
			runUnseen(m, releaseScript, "c", "0", "", "")
			acquire(t, b, m, "d", time.Minute, nil)
		}, simba.StatusTimeout},
		"expired": {50 * time.Millisecond, expire, simba.StatusAcquired},
		"expired-then-tenure-of-d": {50 * time.Millisecond, func(m string) {
			expire(m)
			acquire(t, b, m, "d", time.Minute, nil)
		}, simba.StatusWaiting},
		"expired-then-tenure-of-d-broken": {50 * time.Millisecond, func(m string) {
			expire(m)
			acquire(t, b, m, "d", time.Minute, nil)
			runUnseen(m, breakScript, "")
		}, simba.StatusAcquired},
		"expired-then-tenure-of-d-released": {50 * time.Millisecond, func(m string) {
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
					t.Fatalf("OWNER after the release: %+v; want c", o)
				}
				story.then(mutex)
				b.schedule.bringForward(time.Now(), mutex)
				w.await(t)
				sent := time.Now()
				o, err := ticket.End(simba.EndWoken)
				if unavailable(t, err) && time.Since(sent) >= ttl && ttl < 10*time.Second {
					// The second lease expired too, before a busy Redis answered.
					continue
				}
				if err != nil || o.Status != story.want {
					t.Errorf("End of the waiter: %+v %v; want status %v", o, err, story.want)
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
	w, ticket := waits(t, two, "m", "b")
	release(t, one, "m", "a")
	mustOwn(t, one, "m", "b")
	granted(t, w, ticket)
}

func TestWaitersAreQueuedAgainWhenTheirServerIsReachable(t *testing.T) {
	s := stores.Redis(t)
	one := serve(t, "redis://"+s.Addr, newListener())
	two := serve(t, "redis://"+s.Addr, newListener())
	c := clientOf(t, s.Addr)
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
		t.Fatalf("QUEUE: %v %v; want nothing while the server is unreachable", list, err)
	}
	// With asOf 0, the call of set below can put the next reconciliation off.
	until(t, "the mutex is in the schedule", func() bool {
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

// After an interruption of the server's pub/sub connection, its waiter b has lost its queue entry,
// and the contender p, which queued after b, may have missed a notice.
func TestWaitersAreQueuedAgainBeforeANoticeIsRepeated(t *testing.T) {
	s := stores.Redis(t)
	one := serve(t, "redis://"+s.Addr, newListener())
	e := newListener()
	two := serve(t, "redis://"+s.Addr, e)
	c := clientOf(t, s.Addr)
	own, channel := two.subs.serverChannel(), simba.ContenderChannel("m", "p")
	e.subscribe(t, two, channel)
	acquire(t, one, "m", "a", time.Minute, nil)
	w, ticket := waits(t, two, "m", "b")
	acquire(t, two, "m", "p", time.Minute, nil)
	awaitIdle(t, two, "m", "b")
	blockReconciling(t, two, "m")
	r := two.subs.all()[0]
	r.unsubscribe(own)
	r.unsubscribe(channel)
	until(t, "the server has unsubscribed", func() bool {
		n := c.PubSubNumSub(t.Context(), own, channel).Val()
		return len(n) == 2 && n[own]+n[channel] == 0
	})
	release(t, one, "m", "a")
	for _, name := range []string{own, channel} {
		r.subscribe(name, true)
		until(t, name+" is confirmed", func() bool { return r.confirmed(name) })
	}
	until(t, "the notice to p is to be repeated", func() bool {
		two.mu.Lock()
		defer two.mu.Unlock()
		return len(two.chores["m"]) == 1
	})
	two.reconcile(t.Context(), "m")
	mustOwn(t, one, "m", "b")
	granted(t, w, ticket)
}

// awaitIdle waits until the server has finished the subscriptions and the reconciliation that
// follow a new waiter.
func awaitIdle(t *testing.T, b *Backend, mutex, contender string) {
	t.Helper()
	for _, channel := range []string{simba.MutexChannel(mutex), contenderGlob} {
		until(t, channel+" is confirmed", func() bool { return b.subs.subscriberForChannel(channel).confirmed(channel) })
	}
	b.schedule.bringForward(time.Now(), mutex)
	until(t, "the mutex has been reconciled", func() bool {
		b.schedule.mu.Lock()
		defer b.schedule.mu.Unlock()
		x := b.schedule.byMutex[mutex]
		return x != nil && time.Until(x.at) > nextReconcile
	})
	until(t, "no mutex is being reconciled", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.reconciling) == 0
	})
}

// unsubscribeReleases makes the server miss all notices of a mutex's release.
func unsubscribeReleases(b *Backend, mutex string) {
	for _, channel := range []string{simba.MutexChannel(mutex), contenderGlob} {
		b.subs.subscriberForChannel(channel).unsubscribe(channel)
	}
}

// mustStay fails the test if the contender loses the mutex during 50 reads.
func mustStay(t *testing.T, b *Backend, mutex, contender string) {
	t.Helper()
	checks := 0
	until(t, "the owner was read often enough", func() bool {
		if o := owner(t, b, mutex); o.Owner != contender {
			t.Fatalf("OWNER: %+v; want %s, which owned the mutex before", o, contender)
		}
		checks++
		return checks == 50
	})
}

func TestCancelRemovesMutexFromSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := make(chan string, 3)
		s := &schedule{reconcile: func(m string) { fired <- m }, byMutex: make(map[string]*dueTime)}
		for _, m := range []string{"x", "y", "z"} {
			s.set(m, time.Now().Add(time.Hour), 1)
		}
		s.cancel("x", 1)
		s.cancel("z", 2)
		s.cancel("z", 2)
		s.cancel("y", 0)
		time.Sleep(2 * time.Hour)
		if n := len(fired); n != 1 || <-fired != "y" || len(s.byMutex) != 0 {
			t.Errorf("after cancel %d mutexes were due and %d are left, want y and none", n, len(s.byMutex))
		}
	})
}

// runScript is Backend.ask without applyReply.
func runScript(t *testing.T, b *Backend, mutex string, s *script, args ...any) *reply {
	t.Helper()
	sent := time.Now()
	reply, err := b.up.run(context.Background(), simba.MutexChannel(mutex), s, s.command(mutex, b.header(b.Checks.Refusal() != nil), args...))
	must(t, err)
	st, err := parseReply(mutex, reply)
	must(t, err)
	st.sent = sent
	return st
}
