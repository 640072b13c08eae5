package redis

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// These tests check how servers handle release notices of Simba, a lock library for the JVM. Up to
// version 3.1, Simba notifies only one contender of a release.

func TestContenderNoticesAreKeptIfReconcilingFails(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, newListener())
	must(t, c.Set(t.Context(), seeds.Fence("m"), "x", 0).Err())
	b.mu.Lock()
	b.contenderNotices["m"] = []contenderNotice{{"J1", "J0"}}
	b.mu.Unlock()
	if _, err := b.runReconcile(t.Context(), "m", "", nil); err == nil {
		t.Fatal("runReconcile returned no error, want one that refuses the fence")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := fmt.Sprint(b.contenderNotices["m"]); got != "[{J1 J0}]" {
		t.Errorf("the notices kept for the next reconciliation: %s; want [{J1 J0}]", got)
	}
}

// releaseThenRun makes a contender of Simba release the mutex. It runs our script s before the
// server can reconcile the mutex.
func releaseThenRun(t testing.TB, j *simbaContender, b *Backend, s *script, args ...any) {
	t.Helper()
	releaseThenRunAmid(t, nothing, nothing, j, b, s, args...)
}

func nothing(redis.Pipeliner) {}

// releaseThenRunAmid is releaseThenRun with other commands between the release and s, and after s.
func releaseThenRunAmid(t testing.TB, before, after func(redis.Pipeliner), j *simbaContender, b *Backend, s *script, args ...any) {
	t.Helper()
	header := b.header(false)
	header[4] = noDeadline
	sent := time.Now()
	var reply *redis.Cmd
	_, err := j.Client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.ScriptLoad(t.Context(), s.text)
		j.send(p, j.Of.Release)
		before(p)
		reply = p.Do(t.Context(), s.command(j.Mutex, header, args...)...)
		after(p)
		return nil
	})
	must(t, err)
	st, err := parseReply(j.Mutex, reply.Val())
	must(t, err)
	st.sent = sent
	b.applyReply(j.Mutex, st)
}

// grantNothing are requests that do not acquire a free mutex for their contender.
var grantNothing = []struct {
	name   string
	script *script
	args   []any
}{
	{"guard", guardScript, []any{"x", int64(60_000), int64(0), "0"}},
	{"release", releaseScript, []any{"x", "0", "", ""}},
	{"break", breakScript, []any{""}},
	{"owner", reconcileScript, []any{"0", "", 0}},
	{"reconcile", reconcileScript, []any{"1", "", 0}},
	{"queue", queueScript, []any{10}},
	{"confirm", confirmScript, []any{"x", "7", "7", "acknowledged"}},
	{"leave", leaveScript, []any{"x", "7", "left"}},
	{"reservation", leaveScript, []any{"x", "", "gone"}},
}

// subscribedTo returns a server without waiters that receives the notices to all contenders of a
// mutex.
func subscribedTo(t testing.TB, addr, mutex string) *Backend {
	t.Helper()
	e := newListener()
	b := serve(t, "redis://"+addr, e)
	b.SetHandoffWindow(time.Minute) // longer than atOnce
	e.subscribe(t, b, seeds.Lease(mutex))
	awaitContenders(t, b)
	return b
}

// awaitContenders waits until the server gets the notices to all contenders.
func awaitContenders(t testing.TB, b *Backend) {
	t.Helper()
	until(t, "the contender channels are confirmed", func() bool { return b.subs.subscriberForChannel(contenderGlob).confirmed(contenderGlob) })
}

func TestOldReleaseRecordedByRequestReachesContenderWithoutQueue(t *testing.T) {
	s := stores.Redis(t)
	for _, by := range grantNothing {
		t.Run(by.name, func(t *testing.T) {
			mutex := "m" + by.name
			b := subscribedTo(t, s.Addr, mutex)
			j, k := beforeAnOldRelease(t, s.Addr, b, mutex)
			sent := time.Now()
			releaseThenRun(t, j, b, by.script, by.args...)
			k.receive("released@@J0")
			within(t, "the notice", sent)
			acquire(t, b, mutex, "a", time.Minute, nil)
			if before := k.receive("acquired@@a"); slices.Contains(before, "released@@J0") {
				t.Errorf("the contender received the release again: %q", before)
			}
		})
	}
}

// beforeAnOldRelease returns two contenders of Simba. The first is an owner of version 3.1, whose
// release will notify a dead contender. The second waits, and is of a version without a queue.
func beforeAnOldRelease(t testing.TB, addr string, b *Backend, mutex string) (owning, waiting *simbaContender) {
	t.Helper()
	j := newSimbaContender(t, addr, seeds.Simba31, mutex, "J0")
	j.mustAcquire()
	newSimbaContender(t, addr, seeds.Simba31, mutex, "J1").mustQueue()
	k := newSimbaContender(t, addr, seeds.Simba33, mutex, "K").subscribe()
	k.mustQueue()
	owner(t, b, mutex) // records the tenure
	return j, k
}

func TestOldReleaseOfMutexAcquiredInSameStepIsNotAnnounced(t *testing.T) {
	s := stores.Redis(t)
	b := subscribedTo(t, s.Addr, "m")
	j, k := beforeAnOldRelease(t, s.Addr, b, "m")
	releaseThenRun(t, j, b, acquireScript, "a", int64(60_000), int64(0), "noqueue", "", "")
	awaitReconciled(t, b, "m")
	release(t, b, "m", "a")
	if before := k.receive("released@@a"); slices.Contains(before, "released@@J0") {
		t.Errorf("the contender received the release of J0 too: %q", before)
	}
}

func awaitReconciled(t testing.TB, b *Backend, mutex string) {
	t.Helper()
	until(t, "all contender notices are handled", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, busy := b.reconciling[mutex]
		return !busy && len(b.contenderNotices[mutex]) == 0
	})
}

// Simba 3.2 publishes its release on the mutex's channel. So our servers must not announce it again.
func TestReleaseBySimba32IsAnnouncedOnce(t *testing.T) {
	s := stores.Redis(t)
	for _, by := range grantNothing {
		t.Run(by.name, func(t *testing.T) {
			mutex := "m" + by.name
			b := subscribedTo(t, s.Addr, mutex)
			j := newSimbaContender(t, s.Addr, seeds.Simba32, mutex, "J")
			j.mustAcquire()
			k := newSimbaContender(t, s.Addr, seeds.Simba33, mutex, "K").subscribe()
			owner(t, b, mutex)
			releaseThenRun(t, j, b, by.script, by.args...)
			if _, err := b.runReconcile(t.Context(), mutex, "", nil); err != nil {
				t.Fatal(err)
			}
			acquire(t, b, mutex, "a", time.Minute, nil)
			if before := k.receive("acquired@@a"); len(before) != 1 || before[0] != "released@@J" {
				t.Errorf("before the next grant the contender received %q; want the release of J once", before)
			}
		})
	}
}

// Waiters of Simba ask again when a lease expires, and need no notice.
func TestExpiryOfOldLeaseIsNotAnnounced(t *testing.T) {
	s := stores.Redis(t)
	b := subscribedTo(t, s.Addr, "m")
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J")
	k := newSimbaContender(t, s.Addr, seeds.Simba33, "m", "K").subscribe()
	for range 20 {
		j.acquire(30 * time.Millisecond)
		for {
			if o := owner(t, b, "m"); o.Owner == "" {
				break
			}
		}
	}
	acquire(t, b, "m", "a", time.Minute, nil)
	if before := k.receive("acquired@@a"); slices.Contains(before, "released@@J") {
		t.Errorf("K received a release of J, whose leases only expired: %q", before)
	}
}

// J0's release notifies J1, the first contender of the queue, and removes it. Our request then
// grants the mutex to our waiter. J1 must be next.
func TestNotifiedSimbaContenderIsFirstIfRequestRecordsReleaseFirst(t *testing.T) {
	s := stores.Redis(t)
	check := func(t *testing.T, mutex string, script *script, args []any, queuesAgain bool) {
		b := serve(t, "redis://"+s.Addr, newListener())
		b.SetHandoffWindow(time.Minute)
		j := newSimbaContender(t, s.Addr, seeds.Simba31, mutex, "J0")
		j.mustAcquire()
		next := newSimbaContender(t, s.Addr, seeds.Simba31, mutex, "J1").subscribe()
		next.mustQueue()
		first, ticket := waits(t, b, mutex, "first")
		second, later := waits(t, b, mutex, "second")
		awaitIdle(t, b, mutex, "first")
		awaitIdle(t, b, mutex, "second")
		awaitContenders(t, b)
		after := nothing
		if queuesAgain {
			time.Sleep(time.Second) // Simba scores by whole seconds: J1 needs a later one
			after = func(p redis.Pipeliner) { next.send(p, next.Of.Acquire, 60_000) }
		}
		releaseThenRunAmid(t, nothing, after, j, b, script, args...)
		granted(t, first, ticket)
		until(t, "J1 is the first again", func() bool {
			rank, err := next.Client.ZRank(t.Context(), seeds.Queue(mutex), "J1").Result()
			return err == nil && rank == 0
		})
		next.mustQueue()
		release(t, b, mutex, "first")
		next.receive("released@@first")
		next.mustAcquire()
		next.release()
		granted(t, second, later)
	}
	for _, by := range grantNothing {
		if by.script == confirmScript {
			continue // confirm hands nothing off, so a reconciliation reserves the mutex for J1
		}
		t.Run(by.name, func(t *testing.T) { check(t, "m"+by.name, by.script, by.args, false) })
	}
	t.Run("guard, and J1 queues again before the server reconciles", func(t *testing.T) {
		check(t, "again", guardScript, grantNothing[0].args, true)
	})
}

// C acquires before our request, which finds C's tenure and does not see that the mutex was free.
func TestNotifiedSimbaContenderIsFirstIfAnotherAcquiresInSameStep(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J0")
	j.mustAcquire()
	next := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J1").subscribe()
	next.mustQueue()
	acquire(t, b, "m", "W", time.Minute, newWaiter())
	awaitIdle(t, b, "m", "W")
	c := newSimbaContender(t, s.Addr, seeds.Simba33, "m", "C")
	faster := func(p redis.Pipeliner) { c.send(p, c.Of.Acquire, 60_000) }
	releaseThenRunAmid(t, faster, nothing, j, b, guardScript, "x", int64(60_000), int64(0), "0")
	until(t, "J1 is the first again", func() bool {
		return fmt.Sprint(next.Client.ZRange(t.Context(), seeds.Queue("m"), 0, -1).Val()) == "[J1 W]"
	})
	mustOwn(t, b, "m", "C")
}

// X acquires and releases the mutex before the server reconciles it. J1 gets a reservation and does
// not use it.
func TestContenderThatMissesItsReservationIsNotNext(t *testing.T) {
	s := stores.Redis(t)
	b := subscribedTo(t, s.Addr, "m")
	b.SetHandoffWindow(time.Minute)
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J0")
	j.mustAcquire()
	next := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J1").subscribe()
	next.mustQueue()
	owner(t, b, "m") // records the tenure
	x := newSimbaContender(t, s.Addr, seeds.Simba40, "m", "X")
	unseen := func(p redis.Pipeliner) {
		x.send(p, x.Of.Acquire, 60_000)
		next.send(p, next.Of.Acquire, 60_000)
		x.send(p, x.Of.Release)
	}
	blockReconciling(t, b, "m")
	releaseThenRunAmid(t, nothing, unseen, j, b, guardScript, "y", int64(60_000), int64(0), "0")
	until(t, "the notice has arrived", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.contenderNotices["m"]) == 1
	})
	if _, err := b.runReconcile(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	wants(t, simba.StatusQueued, b, "m", "N")
	ask(t, b, leaveScript, "J1", "", "gone")
	wants(t, simba.StatusAcquired, b, "m", "N")
}

// A script needs long to read all waiters. So it does that only if another program may have changed
// the queue.
func TestExpiryOfOwnLeaseReadsNoWaiters(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, newListener())
	fullReads := func() string {
		return c.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_hkeys"]
	}
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "p", time.Minute, nil)
	runScript(t, b, "m", guardScript, "a", int64(200), int64(0), "0")
	until(t, "the lease expires", func() bool { return c.Get(t.Context(), seeds.Lease("m")).Err() == redis.Nil })
	wants(t, simba.StatusAcquired, b, "m", "p")
	if n := fullReads(); n != "" {
		t.Errorf("Redis ran HKEYS on the waiters: %s; want no such call", n)
	}
}

func TestContenderMayBeNamedLikeAPattern(t *testing.T) {
	s := stores.Redis(t)
	for _, glob := range []string{noticeGlob, eventGlob, contenderGlob} {
		if _, _, ok := simba.ParseContenderChannel(glob); ok {
			t.Errorf("the pattern %s is a contender's channel", glob)
		}
	}
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	channel := simba.ContenderChannel("*", "*")
	e.subscribe(t, b, channel)
	acquire(t, b, "*", "o", time.Minute, nil)
	acquire(t, b, "*", "*", time.Minute, nil)
	release(t, b, "*", "o")
	e.receive(t, channel, is("released@@o"))
}
