package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// Our servers publish notices of reservations on the channels of contenders. Simba, a lock library
// for the JVM, publishes its releases there up to version 3.1. A server must not take its own
// notices for Simba's.

func ask(t *testing.T, b *Backend, s *script, args ...any) {
	t.Helper()
	_, err := b.ask(t.Context(), "m", s, args...)
	must(t, err)
}

func TestLateOwnNoticeQueuesNobody(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	channel := simba.ContenderChannel("m", "P")
	e.subscribe(t, b, channel)
	acquire(t, b, "m", "L", time.Minute, nil)
	acquire(t, b, "m", "P", time.Minute, nil)
	w, ticket := waits(t, b, "m", "W")
	awaitIdle(t, b, "m", "W")
	release(t, b, "m", "L")
	e.receive(t, channel, is("released@@L"))
	acquire(t, b, "m", "P", time.Minute, nil)
	release(t, b, "m", "P")
	granted(t, w, ticket)
	ask(t, b, reconcileScript, "1", "", 1, "P", "L")
	if err := c.ZScore(t.Context(), seeds.Queue("m"), "P").Err(); err != redis.Nil {
		t.Errorf("P does not wait, but Redis has it in the queue: %v", err)
	}
}

func TestLateOwnNoticeEndsNoReservation(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute)
	for _, c := range []string{"P", "L", "N"} {
		e.subscribe(t, b, simba.ContenderChannel("m", c))
	}
	acquire(t, b, "m", "L", time.Minute, nil)
	acquire(t, b, "m", "P", time.Minute, nil)
	awaitIdle(t, b, "m", "P")
	release(t, b, "m", "L") // P gets the notice released@@L
	acquire(t, b, "m", "L", time.Minute, nil)
	acquire(t, b, "m", "N", time.Minute, nil)
	ask(t, b, leaveScript, "P", "", "gone")
	ask(t, b, reconcileScript, "1", "", 1, "P", "L")
	wants(t, simba.StatusQueued, b, "m", "N")
	wants(t, simba.StatusAcquired, b, "m", "L")
}

// The server handles a notice to P and a later notice to jvm in one reconciliation. Meanwhile jvm,
// a contender of Simba, has the reservation.
func TestLateOwnNoticeEndsNoReservationOfSimbaContender(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute)
	e.subscribe(t, b, simba.ContenderChannel("m", "P"))
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "jvm").subscribe()
	j.mustAcquire()
	acquire(t, b, "m", "P", time.Minute, nil)
	awaitContenders(t, b)
	blockReconciling(t, b, "m")
	if _, _, err := b.Break(t.Context(), "m", ""); err != nil {
		t.Fatal(err)
	}
	e.receive(t, simba.ContenderChannel("m", "P"), is("released@@jvm"))
	acquire(t, b, "m", "P", time.Minute, nil)
	release(t, b, "m", "P")
	acquire(t, b, "m", "a", time.Minute, nil)
	j.mustQueue()
	release(t, b, "m", "a")
	j.receive("released@@a")
	until(t, "both notices have arrived", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.contenderNotices["m"]) == 2
	})
	if _, err := b.runReconcile(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	if record := j.Client.Get(t.Context(), seeds.Lease("m")+":tenure").Val(); !strings.Contains(record, "jvm") {
		t.Errorf("jvm's reservation is gone; the record is %q", record)
	}
	j.mustAcquire()
}

// blockReconciling marks a mutex as being reconciled, so that the server does not reconcile it in
// the background.
func blockReconciling(t testing.TB, b *Backend, mutex string) {
	t.Helper()
	until(t, "the mutex is not being reconciled", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, busy := b.reconciling[mutex]
		if !busy {
			b.reconciling[mutex] = false
		}
		return !busy
	})
}

// A request has recorded J's release, with the mark unnotified of lua/state.lua. The mark stays,
// since Simba 3.2 notifies no single contender. The server must not take the late notice of L's
// release for a notice of J's release.
func TestLateOwnNoticeIsNotTakenForRecordedRelease(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute)
	e.subscribe(t, b, simba.ContenderChannel("m", "P"))
	acquire(t, b, "m", "L", time.Minute, nil)
	acquire(t, b, "m", "P", time.Minute, nil)
	release(t, b, "m", "L") // P gets the notice released@@L
	acquire(t, b, "m", "P", time.Minute, nil)
	release(t, b, "m", "P")
	j := newSimbaContender(t, s.Addr, seeds.Simba32, "m", "J")
	j.mustAcquire()
	owner(t, b, "m") // records the tenure
	releaseThenRun(t, j, b, guardScript, "x", int64(60_000), int64(0), "0")
	ask(t, b, reconcileScript, "1", "", 1, "P", "L")
	wants(t, simba.StatusAcquired, b, "m", "N")
}
