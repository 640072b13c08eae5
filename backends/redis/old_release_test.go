package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// What servers overhear on the channels of all contenders, and what they do about it.

func TestAWakeupIsKeptForTheNextLookIfALookFails(t *testing.T) {
	s := stores.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	b := serve(t, "redis://"+s.Addr, newEar())
	if err := c.Set(t.Context(), seeds.Fence("m"), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.addressed["m"] = []wakeup{{"J1", "J0"}}
	b.mu.Unlock()
	if _, err := b.assert(t.Context(), "m", "", nil); err == nil {
		t.Fatal("the look succeeds")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := fmt.Sprint(b.addressed["m"]); got != "[{J1 J0}]" {
		t.Errorf("%s is kept", got)
	}
}

// The old release wakes a dead contender, and a contender of 3.2 and later hears only the mutex' channel.
func TestAnOldReleaseReachesAContenderWithoutAQueue(t *testing.T) {
	s := stores.Redis(t)
	for _, of := range []seeds.Generation{seeds.Simba32, seeds.Simba33, seeds.Simba40} {
		e := newEar()
		b := serve(t, "redis://"+s.Addr, e)
		mutex := "m" + of.Name
		e.listen(t, b, seeds.Lease(mutex))
		until(t, "all contenders are heard", func() bool { return b.tuner.home(contenderGlob).listens(contenderGlob) })
		j := newRival(t, s.Addr, seeds.Simba31, mutex, "J0")
		j.take()
		newRival(t, s.Addr, seeds.Simba31, mutex, "J1").queueUp()
		k := newRival(t, s.Addr, of, mutex, "K").listen()
		k.queueUp()
		owner(t, b, mutex) // the server knows the tenure
		// The look that J0's acquired@@ asked for is over, too: one that notes the release before that
		// is heard would use it up, see docs/SIMBA.md.
		<-time.After(20 * foreignPause)
		until(t, "no look is under way", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			_, busy := b.attending[mutex]
			return !busy
		})
		sent := time.Now()
		j.release()
		k.hear("released@@J0")
		within(t, "heard", sent)
	}
}

// A walk through all waiters takes long. It is for what others may have done to the queue.
func TestTheExpiryOfAnOwnLeaseWalksThroughNoWaiters(t *testing.T) {
	s := stores.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	b := serve(t, "redis://"+s.Addr, newEar())
	walks := func() string {
		return c.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_hkeys"]
	}
	acquire(t, b, "m", "a", 200*time.Millisecond, nil)
	acquire(t, b, "m", "p", time.Minute, nil)
	until(t, "the lease expires", func() bool { return c.Get(t.Context(), seeds.Lease("m")).Err() == redis.Nil })
	if o, _ := acquire(t, b, "m", "p", time.Minute, nil); o.Status != simba.StatusAcquired {
		t.Fatalf("%+v", o)
	}
	if n := walks(); n != "" {
		t.Error(n)
	}
}

func TestAContenderMayBeNamedLikeAPattern(t *testing.T) {
	s := stores.Redis(t)
	for _, glob := range []string{noticeGlob, eventGlob, contenderGlob} {
		if _, _, ok := simba.ParseContenderChannel(glob); ok {
			t.Errorf("the pattern %s is a contender's channel", glob)
		}
	}
	e := newEar()
	b := serve(t, "redis://"+s.Addr, e)
	channel := simba.ContenderChannel("*", "*")
	e.listen(t, b, channel)
	acquire(t, b, "*", "o", time.Minute, nil)
	acquire(t, b, "*", "*", time.Minute, nil)
	release(t, b, "*", "o")
	e.hear(t, channel, is("released@@o"))
}
