package redis

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// Servers hear their own turn notices on the channels where Simba up to 3.1 publishes its releases.

func TestLateOwnNoticeQueuesNobody(t *testing.T) {
	s := stores.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	channel := simba.ContenderChannel("m", "P")
	e.listen(t, b, channel)
	acquire(t, b, "m", "L", time.Minute, nil)
	acquire(t, b, "m", "P", time.Minute, nil)
	w := newWaiter()
	_, ticket := acquire(t, b, "m", "W", time.Minute, w)
	awaitIdle(t, b, "m", "W")
	release(t, b, "m", "L")
	e.hear(t, channel, is("released@@L"))
	acquire(t, b, "m", "P", time.Minute, nil)
	release(t, b, "m", "P")
	granted(t, w, ticket)
	if _, err := b.ask(t.Context(), "m", reconcileScript, "1", "", 1, "P", "L"); err != nil {
		t.Fatal(err)
	}
	if err := c.ZScore(t.Context(), seeds.Queue("m"), "P").Err(); err != redis.Nil {
		t.Errorf("P, who does not wait, has a place: %v", err)
	}
}

func TestLateOwnNoticeEndsNoReservation(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute)
	for _, c := range []string{"P", "L", "N"} {
		e.listen(t, b, simba.ContenderChannel("m", c))
	}
	acquire(t, b, "m", "L", time.Minute, nil)
	acquire(t, b, "m", "P", time.Minute, nil)
	awaitIdle(t, b, "m", "P")
	release(t, b, "m", "L") // P gets the notice released@@L
	acquire(t, b, "m", "L", time.Minute, nil)
	acquire(t, b, "m", "N", time.Minute, nil)
	if _, err := b.ask(t.Context(), "m", handOffScript, "P", "0", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ask(t.Context(), "m", reconcileScript, "1", "", 1, "P", "L"); err != nil {
		t.Fatal(err)
	}
	if o, _ := acquire(t, b, "m", "N", time.Minute, nil); o.Status != simba.StatusQueued {
		t.Errorf("N overtakes L, whose turn it is: %+v", o)
	}
	if o, _ := acquire(t, b, "m", "L", time.Minute, nil); o.Status != simba.StatusAcquired {
		t.Errorf("L asks in its turn: %+v", o)
	}
}

// All that the server overhears is taken in at once, in the second turn of a contender of Simba.
func TestLateOwnNoticeEndsNoReservationOfSimbaContender(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute)
	e.listen(t, b, simba.ContenderChannel("m", "P"))
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "jvm").listen()
	j.take()
	acquire(t, b, "m", "P", time.Minute, nil)
	until(t, "all contenders are heard", func() bool { return b.subs.subscriberFor(contenderGlob).confirmed(contenderGlob) })
	holdReconciles(t, b, "m")
	if _, _, err := b.Break(t.Context(), "m", ""); err != nil {
		t.Fatal(err)
	}
	e.hear(t, simba.ContenderChannel("m", "P"), is("released@@jvm"))
	acquire(t, b, "m", "P", time.Minute, nil)
	release(t, b, "m", "P")
	acquire(t, b, "m", "a", time.Minute, nil)
	j.queueUp()
	release(t, b, "m", "a")
	j.hear("released@@a")
	until(t, "both notices are heard", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.wakeups["m"]) == 2
	})
	if _, err := b.runReconcile(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	if record := j.client.Get(t.Context(), seeds.Lease("m")+":tenure").Val(); !strings.Contains(record, "jvm") {
		t.Errorf("it is not its turn any more: %q", record)
	}
	j.take()
}

// holdLooks has a server make no look at a mutex by itself: one seems to be under way.
func holdReconciles(t testing.TB, b *Backend, mutex string) {
	t.Helper()
	until(t, "looks are held up", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, busy := b.reconciling[mutex]
		if !busy {
			b.reconciling[mutex] = false
		}
		return !busy
	})
}

// J's release was noted. No look takes that note away, since 3.2 tells no contender by itself.
func TestLateOwnNoticeIsNotTakenForRecordedRelease(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute)
	e.listen(t, b, simba.ContenderChannel("m", "P"))
	acquire(t, b, "m", "L", time.Minute, nil)
	acquire(t, b, "m", "P", time.Minute, nil)
	release(t, b, "m", "L") // P gets the notice released@@L
	acquire(t, b, "m", "P", time.Minute, nil)
	release(t, b, "m", "P")
	j := newSimbaContender(t, s.Addr, seeds.Simba32, "m", "J")
	j.take()
	owner(t, b, "m") // the server knows the tenure
	notes(t, j, b, guardScript, "x", int64(60_000), int64(0), "0")
	if _, err := b.ask(t.Context(), "m", reconcileScript, "1", "", 1, "P", "L"); err != nil {
		t.Fatal(err)
	}
	if o, _ := acquire(t, b, "m", "N", time.Minute, nil); o.Status != simba.StatusAcquired {
		t.Errorf("the mutex is kept for P, which does not wait: %+v", o)
	}
}

func TestPollingContendersGetTheMutexInOrder(t *testing.T) {
	s := stores.Redis(t)
	watcher := newListener()
	other := serve(t, "redis://"+s.Addr, watcher)
	other.SetHandoffWindow(time.Minute)
	watcher.listen(t, other, "simba:{m}")
	var refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 3 {
		id := fmt.Sprint("c", i)
		e := newListener()
		b := serve(t, "redis://"+s.Addr, e)
		b.SetHandoffWindow(time.Minute)
		e.listen(t, b, simba.ContenderChannel("m", id))
		turns := e.on(simba.ContenderChannel("m", id))
		wg.Go(func() {
			hasTurn := false
			for won := 0; won < 500; {
				o, _, err := b.Acquire(t.Context(), simba.AcquireRequest{Mutex: "m", Contender: id, TTL: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				if o.Status == simba.StatusAcquired {
					won++
					for len(turns) > 0 { // of before
						<-turns
					}
					hasTurn = false
					if _, _, err := b.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: id}); err != nil {
						t.Error(err)
						return
					}
					continue
				}
				if hasTurn {
					refused.Add(1)
				}
				select {
				case <-turns:
					hasTurn = true
				case <-time.After(10 * time.Second):
					t.Errorf("%s waits in vain", id)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := refused.Load(); n > 0 {
		t.Errorf("%d times a contender asked in its turn and was refused", n)
	}
}
