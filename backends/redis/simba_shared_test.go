package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// Who gets the mutex when contenders of Simba and ours want it.

func TestSimbaReleaseToDeadContenderGrantsBlockedWaiterAtOnce(t *testing.T) {
	s := stores.Redis(t)
	for _, of := range []seeds.Generation{seeds.Simba29, seeds.Simba31} {
		b := serve(t, "redis://"+s.Addr, newListener())
		b.SetHandoffWindow(time.Minute) // longer than atOnce
		mutex := "m" + of.Name
		j := newSimbaContender(t, s.Addr, of, mutex, "J0")
		j.take()
		newSimbaContender(t, s.Addr, of, mutex, "J1").queueUp()
		w := newWaiter()
		_, ticket := acquire(t, b, mutex, "W", time.Minute, w)
		awaitIdle(t, b, mutex, "W")
		sent := time.Now()
		j.release()
		granted(t, w, ticket)
		within(t, "granted", sent)
	}
}

func TestSimbaReleaseToDeadContenderNotifiesPollingWaiterAtOnce(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute) // longer than atOnce
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J0")
	j.take()
	newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J1").queueUp()
	e.listen(t, b, "simba:{m}:p")
	acquire(t, b, "m", "p", time.Minute, nil)
	until(t, "all contenders are heard", func() bool { return b.subs.subscriberFor(contenderGlob).confirmed(contenderGlob) })
	sent := time.Now()
	j.release()
	e.hear(t, "simba:{m}:p", is("released@@J0"))
	within(t, "told", sent)
}

func TestContenderNotifiedBySimbaReleaseHasReservation(t *testing.T) {
	s := stores.Redis(t)
	for _, of := range []seeds.Generation{seeds.Simba29, seeds.Simba31} {
		b := serve(t, "redis://"+s.Addr, newListener())
		b.SetHandoffWindow(time.Minute)
		mutex := "m" + of.Name
		// What publishes is always 3.1: 2.9 does not hear its own.
		j := newSimbaContender(t, s.Addr, seeds.Simba31, mutex, "J0")
		j.take()
		next := newSimbaContender(t, s.Addr, of, mutex, "J1").listen()
		next.queueUp()
		w := newWaiter()
		_, ticket := acquire(t, b, mutex, "W", time.Minute, w)
		awaitIdle(t, b, mutex, "W")
		j.release()
		next.hear("released@@J0")
		until(t, "the record says whose turn it is", func() bool {
			return strings.Contains(j.client.Get(t.Context(), seeds.Lease(mutex)+":tenure").Val(), "J1")
		})
		if o, _ := acquire(t, b, mutex, "barger", time.Minute, nil); o.Status != simba.StatusQueued || o.Owner != "" {
			t.Errorf("%+v", o)
		}
		next.take()
		next.release()
		granted(t, w, ticket)
	}
}

func TestReleaseThatDeletesTheQueueKeepsTheOrder(t *testing.T) {
	s := stores.Redis(t)
	for _, of := range []seeds.Generation{seeds.Simba32, seeds.Simba33} {
		for _, polls := range []bool{false, true} {
			e := newListener()
			servers := []*Backend{serve(t, "redis://"+s.Addr, e), serve(t, "redis://"+s.Addr, newListener())}
			for _, b := range servers {
				b.SetHandoffWindow(time.Minute) // longer than atOnce
			}
			mutex := fmt.Sprintf("m%s-%v", of.Name, polls)
			j := newSimbaContender(t, s.Addr, of, mutex, "J")
			j.take()
			const first = "p"
			if polls {
				e.listen(t, servers[0], simba.ContenderChannel(mutex, first))
				acquire(t, servers[0], mutex, first, time.Minute, nil)
			}
			var bells []*waiter
			var tickets []simba.Ticket
			for i := range 6 {
				w := newWaiter()
				_, ticket := acquire(t, servers[i/2%2], mutex, fmt.Sprint("c", 9-i), time.Minute, w)
				bells, tickets = append(bells, w), append(tickets, ticket)
				awaitIdle(t, servers[i/2%2], mutex, fmt.Sprint("c", 9-i))
			}
			sent := time.Now()
			j.release()
			if polls {
				e.hear(t, simba.ContenderChannel(mutex, first), is("released@@J"))
				if o, _ := acquire(t, servers[0], mutex, first, time.Minute, nil); o.Status != simba.StatusAcquired {
					t.Fatalf("%s is told that it is its turn, and then: %+v", first, o)
				}
				release(t, servers[1], mutex, first)
			}
			for i := range bells {
				o := granted(t, bells[i], tickets[i])
				within(t, fmt.Sprintf("%s: waiter %d is granted", mutex, i), sent)
				if o.Owner != fmt.Sprint("c", 9-i) {
					t.Errorf("%s: %+v", mutex, o)
				}
				sent = time.Now()
				if i == 2 { // a second time, in the midst
					release(t, servers[0], mutex, o.Owner)
					continue
				}
				release(t, servers[i%2], mutex, o.Owner)
			}
		}
	}
}

// A place is not lost either if another contender queues where the queue was deleted.
func TestOurEntriesReturnToQueueThatSimbaRecreates(t *testing.T) {
	s := stores.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "p", time.Minute, nil)
	acquire(t, b, "m", "w", time.Minute, newWaiter())
	awaitIdle(t, b, "m", "w")
	if err := c.Del(t.Context(), seeds.Queue("m")).Err(); err != nil {
		t.Fatal(err)
	}
	newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J").queueUp()
	list, _, err := b.Queue(t.Context(), "m", 10)
	if err != nil || len(list) != 3 || list[0].Contender != "p" && list[0].Contender != "J" {
		t.Fatalf("%v %v", list, err)
	}
	var ours []string
	for _, e := range list {
		if e.Contender != "J" {
			ours = append(ours, e.Contender)
		}
	}
	if fmt.Sprint(ours) != "[p w]" {
		t.Errorf("%v", list)
	}
	events, _, err := b.History(t.Context(), simba.HistoryRequest{Mutex: "m", Count: 10})
	if err != nil {
		t.Fatal(err)
	}
	queued := 0
	for _, e := range events {
		if e.Kind == simba.EventQueued {
			queued++
		}
	}
	if queued != 2 {
		t.Errorf("%d are told to have queued: %v", queued, events)
	}
}

// The first of the queue is one of another server than the one that notices the release first.
func TestWaiterRemovedBySimbaReleaseIsNotPassedOver(t *testing.T) {
	s := stores.Redis(t)
	one := serve(t, "redis://"+s.Addr, newListener())
	two := serve(t, "redis://"+s.Addr, newListener())
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J")
	j.take()
	first, second := newWaiter(), newWaiter()
	_, ticket := acquire(t, one, "m", "first", time.Minute, first)
	_, later := acquire(t, two, "m", "second", time.Minute, second)
	awaitIdle(t, one, "m", "first")
	awaitIdle(t, two, "m", "second")
	muteReleases(one, "m")
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	until(t, "one server alone listens", func() bool {
		n, err := c.PubSubNumSub(t.Context(), "simba:{m}").Result()
		return err == nil && n["simba:{m}"] == 1
	})
	j.release()
	granted(t, first, ticket)
	release(t, two, "m", "first")
	granted(t, second, later)
}

func TestContenderOnPlainChannelGetsTheMutex(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	b.SetHandoffWindow(time.Minute)
	acquire(t, b, "m", "ours", time.Minute, nil)
	j := newSimbaContender(t, s.Addr, seeds.Simba29, "m", "J").listen()
	j.queueUp()
	w := newWaiter()
	_, ticket := acquire(t, b, "m", "W", time.Minute, w)
	release(t, b, "m", "ours")
	if before := j.hear("released@@ours"); len(before) > 0 {
		t.Errorf("before it hears %q", before)
	}
	j.take()
	if o := owner(t, b, "m"); o.Owner != "J" || o.Token == 0 {
		t.Errorf("%+v", o)
	}
	j.release()
	granted(t, w, ticket)
}

func TestPassedOverSimbaContenderStaysQueuedForItsGrace(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	b.SetQueueGrace(time.Minute)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J")
	turn := func() simba.Outcome {
		t.Helper()
		acquire(t, b, "m", "a", time.Minute, nil)
		j.run(j.of.Acquire, 60_000)
		release(t, b, "m", "a")
		o, _ := acquire(t, b, "m", "b", time.Minute, nil)
		return o
	}
	if o := turn(); o.Status != simba.StatusAcquired { // it does not listen
		t.Fatalf("%+v", o)
	}
	score, err := c.ZScore(t.Context(), seeds.Queue("m"), "J").Result()
	if err != nil {
		t.Fatalf("it was passed over, and its place is gone: %v", err)
	}
	// It listens again, and it is its turn.
	j.listen()
	w := newWaiter()
	_, ticket := acquire(t, b, "m", "W", time.Minute, w)
	if now := c.ZScore(t.Context(), seeds.Queue("m"), "J").Val(); now != score {
		t.Errorf("its place is %v, and was %v", now, score)
	}
	release(t, b, "m", "b")
	if before := j.hear("released@@b"); contains(before, "released@@a") {
		t.Errorf("before, it heard %q", before)
	}
	j.take()
	_ = j.heard.Close()
	j.release()
	granted(t, w, ticket)
	release(t, b, "m", "W")

	// One that is gone for good loses its place.
	b.SetQueueGrace(300 * time.Millisecond)
	acquire(t, b, "m", "a", time.Minute, nil)
	j.run(j.of.Acquire, 60_000)
	until(t, "its place is gone", func() bool {
		release(t, b, "m", "a")
		acquire(t, b, "m", "a", time.Minute, nil)
		return c.ZScore(t.Context(), seeds.Queue("m"), "J").Err() == redis.Nil
	})
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func TestWithoutHandoffWindowSimbaContenderIsNotifiedOnceAndStaysQueued(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	b.SetHandoffWindow(0)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	acquire(t, b, "m", "a", time.Minute, nil)
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J").listen()
	j.queueUp()
	score := c.ZScore(t.Context(), seeds.Queue("m"), "J").Val()
	release(t, b, "m", "a")
	for range 3 { // steps that would hand on
		if _, err := b.runReconcile(t.Context(), "m", "", nil); err != nil {
			t.Fatal(err)
		}
	}
	if o, _ := acquire(t, b, "m", "b", time.Minute, nil); o.Status != simba.StatusAcquired {
		t.Fatalf("%+v", o)
	}
	// On its own channel and on the mutex': once each.
	told := 0
	for _, payload := range j.hear("acquired@@b") {
		if payload == "released@@a" {
			told++
		}
	}
	if told != 2 {
		t.Errorf("told %d times", told)
	}
	if now, err := c.ZScore(t.Context(), seeds.Queue("m"), "J").Result(); err != nil || now != score {
		t.Errorf("its place is %v, and was %v: %v", now, score, err)
	}
}

// A contender of 3.2 and later may take what was announced free; it has no place in the queue.
func TestContenderWithoutQueueIsNotifiedOfFreeMutex(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	for _, of := range []seeds.Generation{seeds.Simba32, seeds.Simba33, seeds.Simba40} {
		mutex := "m" + of.Name
		j := newSimbaContender(t, s.Addr, of, mutex, "J").listen()
		for _, end := range []func(){
			func() { release(t, b, mutex, "a") },
			func() {
				if done, _, err := b.Break(t.Context(), mutex, ""); !done || err != nil {
					t.Error(done, err)
				}
			},
		} {
			acquire(t, b, mutex, "a", time.Minute, nil)
			j.queueUp()
			end()
			j.hear("released@@a")
			j.take()
			j.release()
		}
	}
}

// A contender without a queue takes the mutex in another's turn, and gives it back.
func TestWaiterIsNotifiedAgainAfterTenureInItsReservation(t *testing.T) {
	s := stores.Redis(t)
	for _, of := range []seeds.Generation{seeds.Simba32, seeds.Simba33, seeds.Simba40} {
		e := newListener()
		b := serve(t, "redis://"+s.Addr, e)
		b.SetHandoffWindow(time.Minute)
		mutex := "m" + of.Name
		channel := simba.ContenderChannel(mutex, "p")
		e.listen(t, b, channel)
		lock := simba.MutexChannel(mutex)
		until(t, "the mutex is heard", func() bool { return b.subs.subscriberFor(lock).confirmed(lock) })
		acquire(t, b, mutex, "a", time.Minute, nil)
		acquire(t, b, mutex, "p", time.Minute, nil)
		release(t, b, mutex, "a")
		e.hear(t, channel, is("released@@a"))
		j := newSimbaContender(t, s.Addr, of, mutex, "J")
		j.take()
		j.release()
		// A server that saw the other own it names the other.
		e.hear(t, channel, func(payload string) bool { return payload == "released@@a" || payload == "released@@J" })
		if o, _ := acquire(t, b, mutex, "p", time.Minute, nil); o.Status != simba.StatusAcquired {
			t.Errorf("%+v", o)
		}
	}
}

func TestSimbaAndOurContendersShareAClustersMutexes(t *testing.T) {
	s := stores.RedisCluster(t)
	url := "redis+cluster://" + strings.Join(s.Addrs, ",")
	servers := []*Backend{serve(t, url, newListener()), serve(t, url, newListener())}
	for _, b := range servers {
		b.SetHandoffWindow(time.Minute) // longer than atOnce
	}
	for i := range 6 { // names of several nodes
		for _, of := range []seeds.Generation{seeds.Simba31, seeds.Simba33} {
			mutex := fmt.Sprint("m", i, of.Name)
			j := newSimbaContenderAt(t, &redis.UniversalOptions{Addrs: s.Addrs}, of, mutex, "J")
			theirs := j.take()
			var bells []*waiter
			var tickets []simba.Ticket
			for k, b := range servers {
				w := newWaiter()
				_, ticket := acquire(t, b, mutex, fmt.Sprint("c", k), time.Minute, w)
				bells, tickets = append(bells, w), append(tickets, ticket)
				awaitIdle(t, b, mutex, fmt.Sprint("c", k))
			}
			seen := owner(t, servers[1], mutex)
			if of.Tokens && seen.Token != theirs {
				t.Errorf("%s: it took %d, and we see %d", mutex, theirs, seen.Token)
			}
			sent := time.Now()
			j.release()
			for k := range bells {
				if o := granted(t, bells[k], tickets[k]); o.Token <= seen.Token || o.Owner != fmt.Sprint("c", k) {
					t.Errorf("%s: %+v after %+v", mutex, o, seen)
				}
				within(t, mutex+" is granted", sent)
				release(t, servers[k], mutex, fmt.Sprint("c", k))
				sent = time.Now()
			}
		}
	}
}

// The message of the release goes where the deaf do not listen, and another takes the mutex.
func TestOvertakenContenderOnPlainChannelIsQueuedAgain(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute) // longer than atOnce
	e.listen(t, b, "simba:{m}")
	until(t, "all contenders are heard", func() bool { return b.subs.subscriberFor(contenderGlob).confirmed(contenderGlob) })
	one := newSimbaContender(t, s.Addr, seeds.Simba29, "m", "one")
	barger := newSimbaContender(t, s.Addr, seeds.Simba29, "m", "barger")
	one.take()
	next := newSimbaContender(t, s.Addr, seeds.Simba29, "m", "next").listen()
	next.queueUp()
	_, err := one.client.TxPipelined(t.Context(), func(p redis.Pipeliner) error { // nobody looks in between
		p.Eval(t.Context(), one.of.Release.Source, one.of.Release.Keys("m"), "one")
		p.Eval(t.Context(), barger.of.Acquire.Source, barger.of.Acquire.Keys("m"), "barger", 60_000)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it has its place", func() bool { return one.client.ZScore(t.Context(), seeds.Queue("m"), "next").Err() == nil })
	sent := time.Now()
	barger.release()
	next.hear("released@@barger")
	within(t, "told", sent)
	next.take()
}

// 3.2 and 3.3 delete the places of older contenders. Those that hear the notice contend again.
func TestContenderOnPlainChannelQueuesAgainAfterDeletedQueue(t *testing.T) {
	s := stores.Redis(t)
	for _, of := range []seeds.Generation{seeds.Simba32, seeds.Simba33} {
		e := newListener()
		b := serve(t, "redis://"+s.Addr, e)
		mutex := "m" + of.Name
		e.listen(t, b, seeds.Lease(mutex))
		one := newSimbaContender(t, s.Addr, of, mutex, "one")
		one.take()
		next := newSimbaContender(t, s.Addr, seeds.Simba29, mutex, "next").listen()
		next.queueUp()
		owner(t, b, mutex)
		w := newWaiter()
		_, ticket := acquire(t, b, mutex, "W", time.Minute, w)
		awaitIdle(t, b, mutex, "W")
		one.release()
		granted(t, w, ticket)
		next.hear("released@@one")
		next.queueUp()
		release(t, b, mutex, "W")
		next.hear("released@@W")
		next.take()
	}
}
