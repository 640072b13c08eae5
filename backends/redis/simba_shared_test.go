package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// These tests check the order in which contenders of Simba and of our servers get a shared mutex.
// Simba is a lock library for the JVM.

func TestContenderOnPlainChannelNotifiedBySimbaReleaseHasReservation(t *testing.T) {
	s := stores.Redis(t)
	b := servePlain(t, "redis://"+s.Addr, newListener())
	// The releaser is of 3.1, since contenders of 2.9 do not receive their own notices.
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J0")
	j.mustAcquire()
	next := newSimbaContender(t, s.Addr, seeds.Simba29, "m", "J1").subscribe()
	next.mustQueue()
	w, ticket := waits(t, b, "m", "W")
	awaitIdle(t, b, "m", "W")
	j.release()
	next.receive("released@@J0")
	until(t, "the record has the reservation", func() bool {
		return strings.Contains(j.Client.Get(t.Context(), seeds.Lease("m")+":tenure").Val(), "J1")
	})
	next.mustAcquire()
	next.release()
	granted(t, w, ticket)
}

// p polls. The others wait at two servers, and get the mutex after p.
func TestReleaseThatDeletesTheQueueKeepsTheOrder(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	servers := []*Backend{serve(t, "redis://"+s.Addr, e), serve(t, "redis://"+s.Addr, newListener())}
	for _, b := range servers {
		b.SetHandoffWindow(time.Minute) // longer than atOnce
	}
	for _, of := range []seeds.Generation{seeds.Simba32, seeds.Simba33} {
		mutex := "m" + of.Name
		j := newSimbaContender(t, s.Addr, of, mutex, "J")
		j.mustAcquire()
		e.subscribe(t, servers[0], simba.ContenderChannel(mutex, "p"))
		acquire(t, servers[0], mutex, "p", time.Minute, nil)
		var grants []func() simba.Outcome
		for i := range 6 {
			b, name := servers[i/2%2], fmt.Sprint("c", 9-i)
			w, ticket := waits(t, b, mutex, name)
			awaitIdle(t, b, mutex, name)
			grants = append(grants, func() simba.Outcome { return granted(t, w, ticket) })
		}
		j.release()
		e.receive(t, simba.ContenderChannel(mutex, "p"), is("released@@J"))
		wants(t, simba.StatusAcquired, servers[0], mutex, "p")
		sent := time.Now()
		release(t, servers[1], mutex, "p")
		for i, grant := range grants {
			o := grant()
			within(t, fmt.Sprintf("%s: the grant to waiter %d", mutex, i), sent)
			if o.Owner != fmt.Sprint("c", 9-i) {
				t.Errorf("%s: the granted waiter: %+v; want the contenders in their order", mutex, o)
			}
			sent = time.Now()
			release(t, servers[i%2], mutex, o.Owner)
		}
	}
}

// J queues after the queue was deleted, so the key exists again. Our scripts must restore our
// entries all the same.
func TestOurEntriesReturnToQueueThatSimbaRecreates(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "p", time.Minute, nil)
	acquire(t, b, "m", "w", time.Minute, newWaiter())
	awaitIdle(t, b, "m", "w")
	must(t, c.Del(t.Context(), seeds.Queue("m")).Err())
	newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J").mustQueue()
	list, _, err := b.Queue(t.Context(), "m", 10)
	if err != nil || len(list) != 3 || list[0].Contender != "p" && list[0].Contender != "J" {
		t.Fatalf("QUEUE: %v %v; want p or J first of 3", list, err)
	}
	var ours []string
	for _, e := range list {
		if e.Contender != "J" {
			ours = append(ours, e.Contender)
		}
	}
	if fmt.Sprint(ours) != "[p w]" {
		t.Errorf("QUEUE: %v; want p and then w of our contenders", list)
	}
	events, _, err := b.History(t.Context(), simba.HistoryRequest{Mutex: "m", Count: 10})
	must(t, err)
	queued := 0
	for _, e := range events {
		if e.Kind == simba.EventQueued {
			queued++
		}
	}
	if queued != 2 {
		t.Errorf("HISTORY has %d queued events, want 2: %v", queued, events)
	}
}

// The server of the second waiter learns of the release first.
func TestWaiterRemovedBySimbaReleaseIsNotPassedOver(t *testing.T) {
	s := stores.Redis(t)
	one := serve(t, "redis://"+s.Addr, newListener())
	two := serve(t, "redis://"+s.Addr, newListener())
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J")
	j.mustAcquire()
	first, ticket := waits(t, one, "m", "first")
	second, later := waits(t, two, "m", "second")
	awaitIdle(t, one, "m", "first")
	awaitIdle(t, two, "m", "second")
	unsubscribeReleases(one, "m")
	c := clientOf(t, s.Addr)
	until(t, "only one server is subscribed", func() bool {
		n, err := c.PubSubNumSub(t.Context(), "simba:{m}").Result()
		return err == nil && n["simba:{m}"] == 1
	})
	j.release()
	granted(t, first, ticket)
	release(t, two, "m", "first")
	granted(t, second, later)
}

// servePlain serves with notices on channels without braces.
func servePlain(t *testing.T, url string, n simba.Notices) *Backend {
	t.Helper()
	b := openSoon(t, Options{URL: url, PlainChannels: true, Options: proxy.Options{Notices: n, HandoffWindow: time.Minute, QueueGrace: 5 * time.Second}})
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestWithoutHandoffWindowSimbaContenderIsNotifiedOnceAndStaysQueued(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	b.SetHandoffWindow(0)
	c := clientOf(t, s.Addr)
	acquire(t, b, "m", "a", time.Minute, nil)
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "J").subscribe()
	j.mustQueue()
	score := c.ZScore(t.Context(), seeds.Queue("m"), "J").Val()
	release(t, b, "m", "a")
	for range 3 { // each reconciliation hands a free mutex off
		if _, err := b.runReconcile(t.Context(), "m", "", nil); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, simba.StatusAcquired, b, "m", "b")
	// One notice is on the contender's own channel, and one on the mutex's channel.
	notices := 0
	for _, payload := range j.receive("acquired@@b") {
		if payload == "released@@a" {
			notices++
		}
	}
	if notices != 2 {
		t.Errorf("J received the release of a %d times, want 2", notices)
	}
	if now, err := c.ZScore(t.Context(), seeds.Queue("m"), "J").Result(); err != nil || now != score {
		t.Errorf("the score of J in the queue is %v, want %v as before: %v", now, score, err)
	}
}

// A contender of Simba without a queue entry acquires and releases the mutex during p's
// reservation.
func TestWaiterIsNotifiedAgainAfterTenureInItsReservation(t *testing.T) {
	s := stores.Redis(t)
	for _, of := range []seeds.Generation{seeds.Simba32, seeds.Simba33, seeds.Simba40} {
		e := newListener()
		b := serve(t, "redis://"+s.Addr, e)
		b.SetHandoffWindow(time.Minute)
		mutex := "m" + of.Name
		channel := simba.ContenderChannel(mutex, "p")
		e.subscribe(t, b, channel)
		lock := simba.MutexChannel(mutex)
		until(t, "the mutex's channel is confirmed", func() bool { return b.subs.subscriberForChannel(lock).confirmed(lock) })
		acquire(t, b, mutex, "a", time.Minute, nil)
		acquire(t, b, mutex, "p", time.Minute, nil)
		release(t, b, mutex, "a")
		e.receive(t, channel, is("released@@a"))
		j := newSimbaContender(t, s.Addr, of, mutex, "J")
		j.mustAcquire()
		j.release()
		// The notice names J if the server saw J's tenure.
		e.receive(t, channel, func(payload string) bool { return payload == "released@@a" || payload == "released@@J" })
		wants(t, simba.StatusAcquired, b, mutex, "p")
	}
}

func TestSimbaAndOurContendersShareAClustersMutexes(t *testing.T) {
	s := stores.RedisCluster(t)
	url := "redis+cluster://" + strings.Join(s.Addrs, ",")
	b, other := serve(t, url, newListener()), serve(t, url, newListener())
	b.SetHandoffWindow(time.Minute) // longer than atOnce
	other.SetHandoffWindow(time.Minute)
	for i := range 6 { // names of several nodes
		for _, of := range []seeds.Generation{seeds.Simba31, seeds.Simba33} {
			mutex := fmt.Sprint("m", i, of.Name)
			j := newSimbaContenderAt(t, &redis.UniversalOptions{Addrs: s.Addrs}, of, mutex, "J")
			theirs := j.mustAcquire()
			first, ticket := waits(t, b, mutex, "first")
			awaitIdle(t, b, mutex, "first")
			second, later := waits(t, other, mutex, "second")
			awaitIdle(t, other, mutex, "second")
			seen := owner(t, other, mutex)
			if of.Tokens && seen.Token != theirs {
				t.Errorf("%s: Simba has token %d, OWNER reports %d", mutex, theirs, seen.Token)
			}
			sent := time.Now()
			j.release()
			one := granted(t, first, ticket)
			release(t, b, mutex, "first")
			if two := granted(t, second, later); one.Token <= seen.Token || two.Token <= one.Token {
				t.Errorf("%s: the tokens of the waiters are %d and %d; want ascending ones, above %d", mutex, one.Token, two.Token, seen.Token)
			}
			within(t, "the grants of "+mutex, sent)
			release(t, other, mutex, "second")
		}
	}
}

// A release by Simba 3.2 or 3.3 deletes the queue. A contender before 3.0.2 whose queue entry is
// gone gets a notice when the mutex becomes free and nobody waits. If somebody always waits, it
// gets one every third time.
func TestContenderOnPlainChannelIsNotifiedAfterDeletedQueue(t *testing.T) {
	s := stores.Redis(t)
	b := servePlain(t, "redis://"+s.Addr, newListener())
	for _, of := range []seeds.Generation{seeds.Simba32, seeds.Simba33} {
		for waiters := range 5 {
			mutex := fmt.Sprint("m", of.Name, waiters)
			one := newSimbaContender(t, s.Addr, of, mutex, "one")
			one.mustAcquire()
			next := newSimbaContender(t, s.Addr, seeds.Simba29, mutex, "next").subscribe()
			next.mustQueue()
			owner(t, b, mutex)
			want := "released@@one"
			if waiters > 0 {
				w, ticket := waits(t, b, mutex, "W0")
				awaitIdle(t, b, mutex, "W0")
				one.release()
				granted(t, w, ticket)
				for i := 1; i < waiters; i++ {
					w, ticket = waits(t, b, mutex, fmt.Sprint("W", i))
					release(t, b, mutex, fmt.Sprint("W", i-1))
					granted(t, w, ticket)
				}
				want = fmt.Sprint("released@@W", min(waiters-1, 1))
				release(t, b, mutex, fmt.Sprint("W", waiters-1))
			} else {
				one.release()
				owner(t, b, mutex)
			}
			if before := next.receive(want); len(before) > 0 {
				t.Errorf("%s, %d waiters: before %s the contender received %q, want nothing", of.Name, waiters, want, before)
			}
		}
	}
}
