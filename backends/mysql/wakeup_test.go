package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// atContentionTiming opens a server that does not read the row before the lease ends. So no later
// refresh hides a lost wake-up.
func atContentionTiming(t testing.TB, addr string, n simba.Notices) *Backend {
	return serve(t, addr, func(o *Options) { o.Poll, o.Notices = 0, n })
}

func shortTimeoutAtContentionTiming(t testing.TB, addr string, n simba.Notices) *Backend {
	return serve(t, addr, func(o *Options) { o.Poll, o.Notices, o.Timeout = 0, n, testTimeout })
}

func TestRefreshDelayIsTheContentionTiming(t *testing.T) {
	at := func(ttl, transition int64) row {
		return row{owner: "a", live: true, now: 1000, ttlAt: 1000 + ttl, transitionAt: 1000 + ttl + transition}
	}
	for name, c := range map[string]struct {
		row            row
		poll, from, to time.Duration
	}{
		"with a transition window":     {at(4000, 1000), 0, 4800 * time.Millisecond, 6 * time.Second},
		"without one":                  {at(5000, 0), 0, 5 * time.Second, 6 * time.Second},
		"never below 0":                {at(0, 50), 0, 0, 1050 * time.Millisecond},
		"free":                         {row{}, 0, 0, time.Second},
		"not longer than --mysql-poll": {at(5000, 0), 100 * time.Millisecond, 100 * time.Millisecond, 100*time.Millisecond + 1},
	} {
		b := &Backend{poll: c.poll}
		var least, most time.Duration = time.Hour, -1
		for range 10000 {
			d := b.refreshDelay(c.row)
			least, most = min(least, d), max(most, d)
		}
		if least < c.from || most >= c.to {
			t.Errorf("%s: refreshDelay returned %v to %v, want [%v, %v)", name, least, most, c.from, c.to)
		}
		if spread := c.to - c.from; most-least < spread/2 {
			t.Errorf("%s: refreshDelay returned only %v to %v, want at least half of the range", name, least, most)
		}
	}
}

// The tenure ends before the answer to its GUARD arrives.
func TestLateGuardAnswerDelaysNoRefresh(t *testing.T) {
	b := atContentionTiming(t, stores.MariaDB(t).Addr, conformance.NewBroker())
	a := take(t, b, "late", "a", long)
	w := block(t, b, "late", "b", time.Minute)
	block(t, b, "late", "c", time.Minute)
	release(t, b, "late", "a")
	w.granted(t)
	m := b.ref("late")
	defer b.unref(m)
	b.noteRenewal(m, lease{owner: "a", token: a.Token, ttl: long, since: time.Now()})
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := time.Until(m.refreshAt); d > time.Minute+3*time.Second || m.lastOwner != "b" {
		t.Errorf("after the late answer the next refresh is in %v, the last owner is %s; want about a minute, and b", d, m.lastOwner)
	}
}

// An answer arrives for a lease that the contender had before it began to wait. The contender may
// have released that lease meanwhile, through another server. So the waiter stays in the queue.
func TestAnswerOlderThanAWaiterGrantsItNothing(t *testing.T) {
	b := atContentionTiming(t, stores.MariaDB(t).Addr, conformance.NewBroker())
	other := take(t, b, "old", "b", long)
	sent := time.Now()
	w := block(t, b, "old", "a", long)
	m := b.ref("old")
	defer b.unref(m)
	if _, err := b.finishAcquire(m, request("old", "a", long), lease{owner: "a", token: other.Token - 1, ttl: long, since: sent}, true); err != nil {
		t.Fatalf("finishAcquire: %v; want no error", err)
	}
	release(t, b, "old", "b")
	if o := w.granted(t); o.Token <= other.Token {
		t.Errorf("the waiter: %+v; want a token above %d", o, other.Token)
	}
}

// A RELEASE waits for its row. Its client gets an UnavailableError, and the statement commits
// later. On a slow machine its lock wait may time out. Then the RELEASE has no effect, and the test
// starts again.
func TestLateReleaseIsNoticed(t *testing.T) {
	store := stores.MariaDB(t)
	db := direct(t, store, "")
	for i := range 10 {
		if releaseTakesEffectLate(t, store, db, fmt.Sprint("late-", i)) {
			return
		}
	}
	t.Fatal("in ten attempts no late RELEASE has taken effect")
}

// releaseTakesEffectLate returns false if the release's lock wait timed out.
func releaseTakesEffectLate(t *testing.T, store *stores.Server, db *sql.DB, mutex string) (effective bool) {
	t.Helper()
	n := conformance.NewBroker(simba.ContenderChannel(mutex, "b"))
	b := shortTimeoutAtContentionTiming(t, store.Addr, n)
	take(t, b, mutex, "a", long)
	if o, _, err := b.Acquire(t.Context(), request(mutex, "b", long)); err != nil || o.Status != simba.StatusQueued {
		t.Fatalf("ACQUIRE: %+v, %v; want queued", o, err)
	}
	tx := lockRow(t, db, mutex)
	defer tx.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: "a"}); !isUnavailable(err) {
		t.Fatalf("RELEASE: %v; want an UnavailableError", err)
	}
	<-time.After(300 * time.Millisecond) // by now a refresh has read the old owner
	tx.Rollback()
	decided := time.Now().Add(time.Duration(lateEffectLimit)*time.Millisecond + testTimeout)
	await(t, "b is woken", func() bool {
		effective = n.Count(simba.ContenderChannel(mutex, "b"), simba.ReleasedNotice("a")) > 0
		return effective || time.Now().After(decided) && ownerOf(t, b, mutex).Owner == "a"
	})
	return effective
}

// The waiter that was granted the mutex is gone, and the request that would hand it off fails.
func TestFailedHandoffIsRetried(t *testing.T) {
	b := shortTimeoutAtContentionTiming(t, stores.MariaDB(t).Addr, conformance.NewBroker())
	take(t, b, "dead", "a", long)
	w := block(t, b, "dead", "b", long)
	release(t, b, "dead", "a")
	<-w.woken
	m := b.ref("dead")
	noError(t, m.lock.lock(t.Context(), false))
	if _, err := w.ticket.End(simba.EndGone); !isUnavailable(err) {
		t.Errorf("End: %v; want an UnavailableError", err)
	}
	m.lock.unlock()
	b.unref(m)
	await(t, "nobody owns the mutex", func() bool { return ownerOf(t, b, "dead").Owner == "" })
}

// While the request waits for its row, other clients see the end of the lease.
func TestGuardThatWaitsForItsRowRevivesNoLease(t *testing.T) {
	store := stores.MariaDB(t)
	b, other := serve(t, store.Addr, nil), serve(t, store.Addr, nil)
	db := direct(t, store, "")
	for _, how := range []string{"guard", "acquire", "release"} {
		o := take(t, b, how, "a", long)
		if _, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: how, Contender: "a", TTL: 300 * time.Millisecond}); err != nil && !isUnavailable(err) {
			// The answer may take longer than the lease.
			t.Fatalf("GUARD: %v; want no error, or an UnavailableError", err)
		}
		tx := lockRow(t, db, how)
		done := make(chan error, 1)
		go func() {
			switch how {
			case "guard":
				g, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: how, Contender: "a", TTL: long})
				if err == nil && g.Status != simba.StatusLost {
					err = fmt.Errorf("%+v; want lost", g)
				}
				done <- err
			case "acquire":
				g, _, err := b.Acquire(t.Context(), request(how, "a", long))
				if err == nil && (g.Status != simba.StatusAcquired || g.Token <= o.Token) {
					err = fmt.Errorf("%+v; want acquired with a larger token", g)
				}
				done <- err
			case "release":
				ok, _, err := b.Release(t.Context(), simba.ReleaseRequest{Mutex: how, Contender: "a"})
				if err == nil && ok {
					err = fmt.Errorf("true; want false, since the lease has ended")
				}
				done <- err
			}
		}()
		await(t, "the end is reported", func() bool { return ownerOf(t, other, how).Owner == "" })
		tx.Rollback()
		if err := <-done; err != nil {
			t.Errorf("%s after the end of the lease: %v", how, err)
		}
	}
}

// The contender owns the mutex before its waiting request returns. The request renews the lease, so
// a refresh in between need not wake the waiter.
func TestWaiterIsNotWokenBeforeItsRequestReturns(t *testing.T) {
	b := atContentionTiming(t, stores.MariaDB(t).Addr, conformance.NewBroker())
	for by, find := range map[string]func(ctx context.Context, m *mutexState) error{
		"a refresh": b.refreshAndHandOff,
		"a renewal": func(ctx context.Context, m *mutexState) error {
			_, _, err := b.Acquire(ctx, request(m.mutex, "a", time.Minute))
			return err
		},
	} {
		take(t, b, by, "a", time.Minute)
		m := b.ref(by)
		defer b.unref(m)
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		_, ticket := enqueuedWaiter(b, m, "a")
		noError(t, find(ctx, m))
		o, err := b.tryAcquireBlocked(ctx, m, ticket)
		if err != nil || o.Status != simba.StatusRenewed || o.TTL <= time.Minute {
			t.Errorf("ACQUIRE … WAIT after %s: %+v, %v; want renewed with the new TTL", by, o, err)
		}
	}
}

// enqueuedWaiter does only the first step of block: ticket and queue entry.
func enqueuedWaiter(b *Backend, m *mutexState, contender string) (*waiter, *proxy.Ticket) {
	w := &waiter{woken: make(chan struct{})}
	r := request(m.mutex, contender, long)
	r.Waiter = &waitState{Waiter: w, since: time.Now()}
	t, _ := b.enqueueBlocked(m, r)
	w.ticket = t
	return w, t
}

// No refresh is scheduled before the end of the lease.
func TestAnyRefreshWakesAContenderThatAcquiredElsewhere(t *testing.T) {
	store := stores.MariaDB(t)
	b, other := atContentionTiming(t, store.Addr, conformance.NewBroker()), serve(t, store.Addr, nil)
	// acquires makes b the owner through the other server.
	acquires := func(t *testing.T, mutex string) {
		t.Helper()
		release(t, other, mutex, "a")
		take(t, other, mutex, "b", long)
	}
	for by, wakes := range map[string]func(t *testing.T, mutex string){
		"another's poll": func(t *testing.T, mutex string) {
			acquires(t, mutex)
			if o, _, err := b.Acquire(t.Context(), request(mutex, "c", long)); err != nil || o.Owner != "b" {
				t.Errorf("ACQUIRE: %+v, %v; want b as the owner", o, err)
			}
		},
		"the end of another's wait": func(t *testing.T, mutex string) {
			c := block(t, b, mutex, "c", long)
			acquires(t, mutex)
			if o, err := c.ticket.End(simba.EndTimeout); err != nil || o.Owner != "b" {
				t.Errorf("End: %+v, %v; want b as the owner", o, err)
			}
		},
		"a refresh for an orphaned grant": func(t *testing.T, mutex string) {
			acquires(t, mutex)
			m := b.ref(mutex)
			defer b.unref(m)
			b.addOrphan(m, orphan{deadline: math.MaxInt64})
		},
		"a refresh that began before the wait": func(t *testing.T, mutex string) {
			acquires(t, mutex)
			m := b.ref(mutex)
			defer b.unref(m)
			noError(t, m.lock.lock(t.Context(), false))
			defer m.lock.unlock()
			s, err := b.store.read(t.Context(), mutex, false)
			if err != nil {
				t.Errorf("read: %v; want no error", err)
			}
			b.observe(m, s)
			b.wakeOwner(m, s, time.Now().Add(-long))
		},
	} {
		t.Run(by, func(t *testing.T) {
			take(t, b, by, "a", long)
			w := block(t, b, by, "b", long)
			wakes(t, by)
			w.granted(t)
		})
	}
	t.Run("a refresh before its own request was answered", func(t *testing.T) {
		const mutex = "unanswered"
		take(t, b, mutex, "a", long)
		m := b.ref(mutex)
		w, ticket := enqueuedWaiter(b, m, "b")
		acquires(t, mutex) // the waiter's request has read the row before that
		if err := b.refreshAndHandOff(t.Context(), m); err != nil {
			t.Errorf("refreshAndHandOff: %v; want no error", err)
		}
		b.markBlocked(m, ticket)
		b.unref(m)
		w.granted(t)
	})
}

func TestChangesBetweenTwoReads(t *testing.T) {
	live := func(owner string, token uint64) row {
		return row{owner: owner, token: token, version: token, live: true}
	}
	over := func(owner string, token uint64) row { return row{owner: owner, token: token, version: token} }
	// as returns a row of a table with fencing_token.
	as := func(owner string, version, fencing uint64, end int64) row {
		r := row{owner: owner, version: version, fencingToken: fencing, fenced: true, transitionAt: end}
		r.derive()
		return r
	}
	liveAs := func(owner string, version, fencing uint64) row { return as(owner, version, fencing, 1) }
	overAs := func(owner string, version, fencing uint64) row { return as(owner, version, fencing, 0) }
	for name, c := range map[string]struct {
		before, now row
		want        []string
	}{
		"nothing":                  {live("a", 1), live("a", 1), nil},
		"a renewal on the JVM":     {live("a", 1), live("a", 2), nil},
		"many renewals on the JVM": {live("a", 1), live("a", 7), nil},
		"expired":                  {live("a", 1), over("a", 1), []string{"expired a 1"}},
		"renewed and expired":      {live("a", 1), over("a", 3), []string{"expired a 3"}},
		"released":                 {live("a", 1), over("", 2), []string{"released a 1"}},
		"expired and taken":        {live("a", 1), live("b", 2), []string{"expired a 1", "acquired b 2"}},
		"released and taken":       {live("a", 1), live("b", 3), []string{"released a 1", "acquired b 3"}},
		"taken and expired":        {over("", 1), over("b", 2), []string{"acquired b 2", "expired b 2"}},
		"taken again after expiry": {over("a", 1), live("a", 2), []string{"acquired a 2"}},
		"still free":               {over("", 1), over("", 5), nil},
		"still expired":            {over("a", 1), over("a", 1), nil},

		"with a token: nothing":                     {liveAs("a", 4, 2), liveAs("a", 4, 2), nil},
		"with a token: renewals on the JVM":         {liveAs("a", 4, 2), liveAs("a", 9, 2), nil},
		"with a token: expired":                     {liveAs("a", 4, 2), overAs("a", 6, 2), []string{"expired a 2"}},
		"with a token: released":                    {liveAs("a", 4, 2), overAs("", 5, 2), []string{"released a 2"}},
		"with a token: released, taken by the same": {liveAs("a", 4, 2), liveAs("a", 6, 3), []string{"released a 2", "acquired a 3"}},
		"with a token: expired, taken by the same":  {liveAs("a", 4, 2), liveAs("a", 5, 3), []string{"expired a 2", "acquired a 3"}},
		"with a token: expired and taken":           {liveAs("a", 4, 4), liveAs("b", 5, 5), []string{"expired a 4", "acquired b 5"}},

		"ours: expired and taken":                             {liveAs("a", 4, 4_000_000), liveAs("b", 5, 5_000_000), []string{"expired a 4000000", "acquired b 5000000"}},
		"ours: released and taken":                            {liveAs("a", 4, 4_000_000), liveAs("b", 6, 6_000_000), []string{"released a 4000000", "acquired b 6000000"}},
		"the owner is given a token":                          {liveAs("a", 5, 4_000_000), liveAs("a", 5, 5_000_001), nil},
		"the owner renews, and is given a token":              {liveAs("a", 5, 4_000_000), liveAs("a", 7, 7_000_001), nil},
		"a tenure without a token is followed by ours":        {liveAs("a", 5, 4_000_000), liveAs("a", 7, 7_000_000), []string{"released a 5000000", "acquired a 7000000"}},
		"older than the column: backfilled":                   {liveAs("a", 5, 0), liveAs("a", 5, 5_000_002), nil},
		"from before the column: a JVM's renewal":             {liveAs("a", 5, 5_000_002), liveAs("a", 6, 5_000_002), nil},
		"from before the column: released, taken by the same": {liveAs("a", 5, 5_000_002), liveAs("a", 7, 7_000_000), []string{"released a 5", "acquired a 7000000"}},
		"from before the column: expired":                     {liveAs("a", 5, 5_000_002), overAs("a", 5, 5_000_002), []string{"expired a 5"}},
	} {
		b := newBackend(Options{Notices: conformance.NewBroker()}, newStore(nil, table{}, testTimeout), endpoint{}, proxy.NewChecks("mysql", nil, nil))
		b.announceChange("m", c.before, c.now)
		var got []string
		for _, e := range b.eventLog.Find(simba.HistoryRequest{Mutex: "m", Count: 10}) {
			got = append(got, fmt.Sprintf("%v %s %d", e.Kind, e.Owner, e.Token))
		}
		b.stop()
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: announceChange announced %q, want %q", name, got, c.want)
		}
	}
}

// The contender waits on a new connection before the wait on the old one ends.
func TestLeavingKeepsTheEntryOfANewConnection(t *testing.T) {
	b := atContentionTiming(t, stores.MariaDB(t).Addr, conformance.NewBroker())
	take(t, b, "queue", "a", long)
	old := block(t, b, "queue", "b", long).ticket.(*proxy.Ticket)
	old.Withdraw()
	again := block(t, b, "queue", "b", long)
	b.dequeue(old, simba.EndTimeout)
	release(t, b, "queue", "a")
	again.granted(t)
}
