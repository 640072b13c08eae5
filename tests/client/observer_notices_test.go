package clienttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
)

// lateClient is a testClient whose subscriber's connection is slow, or loses the server's data. A
// reply on another connection arrives before an earlier notice.
type lateClient struct {
	*testClient
	late   time.Duration
	losing atomic.Bool // the subscriber's connection loses the server's data
}

func (w *world) lateClient(late time.Duration) *lateClient {
	w.t.Helper()
	g := &lateClient{testClient: new(testClient), late: late}
	g.connect(w.server)
	g.rdb = redis.NewClient(&redis.Options{
		Dialer: g.dial, Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true, DisableIdentity: true,
		PoolSize:                 10_000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	c, err := client.New(g.rdb, client.Options{})
	must(w.t, err)
	g.Client = c
	w.guests = append(w.guests, g.testClient)
	return g
}

// dial puts a relay between the client and a wire to the server. After a SUBSCRIBE, the relay
// treats the connection as the subscriber's connection.
func (g *lateClient) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	server, err := g.wires.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	client, near := net.Pipe()
	var subscribed atomic.Bool
	up := tapped{near, func(b []byte) bool {
		if strings.Contains(string(b), "\r\nsubscribe\r\n") {
			subscribed.Store(true)
		}
		return true
	}}
	down := tapped{server, func([]byte) bool { return !subscribed.Load() || !g.losing.Load() }}
	c := &wire{near: near, far: server, lost: make(chan struct{}), frozen: make(chan struct{})}
	g.all.Go(func() {
		var both sync.WaitGroup
		both.Go(func() { g.carry(c, server, up, func() time.Duration { return 0 }) })
		both.Go(func() {
			g.carry(c, near, down, func() time.Duration {
				if subscribed.Load() {
					return g.late
				}
				return 0
			})
		})
		both.Wait()
	})
	return client, nil
}

// tapped is a connection that drops data if pass returns false.
type tapped struct {
	net.Conn
	pass func([]byte) bool
}

func (c tapped) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || c.pass(b[:n]) {
			return n, err
		}
	}
}

func TestObserverReportsEachTenureWhenNoticesAreLate(t *testing.T) {
	for _, late := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 2 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				_, s := observe(t, w.lateClient(late).testClient)
				time.Sleep(2 * late)
				s.want(t, "→")
				g, random := w.client(), rand.New(rand.NewPCG(1, 2))
				var want []string
				for i := range 300 {
					id := fmt.Sprint("c", i)
					ttl := time.Minute
					if i%10 == 9 {
						ttl = 30 * time.Millisecond
					}
					g.take(t, id, ttl)
					time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
					if ttl < time.Minute {
						time.Sleep(ttl) // the lease expires
					} else {
						g.drop(t, id)
					}
					want = append(want, "→"+id, id+"→")
					if i%2 == 0 {
						time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
					}
				}
				time.Sleep(time.Minute)
				s.want(t, want...)
				for i := 1; i < len(s.states); i++ {
					if s.states[i].Before.Token != s.states[i-1].After.Token {
						t.Errorf("the change %+v does not follow %+v", s.states[i], s.states[i-1])
					}
				}
			})
		})
	}
}

func TestObserverReportsAChangeWithoutItsNotice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.lateClient(10*time.Millisecond), w.client()
		_, s := observe(t, observing.testClient)
		time.Sleep(time.Second)
		s.want(t, "→")
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() { g.take(t, "a", time.Hour) }, "→a"},
			{func() { g.drop(t, "a"); g.take(t, "b", time.Hour) }, "a→b"},
			{func() { g.drop(t, "b") }, "b→"},
		} {
			observing.losing.Store(true)
			step.do()
			synctest.Wait()
			observing.losing.Store(false)
			time.Sleep(queryEvery + 6*time.Second)
			s.want(t, step.want)
		}
		g.take(t, "c", time.Hour) // the connection is still the same
		time.Sleep(10 * time.Millisecond)
		s.want(t, "→c")
	})
}

func TestObserverReportsAQueriedOwnerBeforeTheNext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.lateClient(10*time.Millisecond), w.client()
		_, s := observe(t, observing.testClient)
		time.Sleep(time.Second)
		observing.losing.Store(true)
		g.take(t, "a", time.Hour)
		time.Sleep(queryEvery)
		g.drop(t, "a")
		synctest.Wait()
		observing.losing.Store(false)
		s.want(t, "→")
		g.take(t, "b", time.Hour)
		time.Sleep(10 * time.Millisecond)
		s.want(t, "→a", "a→b")
	})
}

// The last of the queries returns the owner c. An Observer that reported c would skip b.
func TestObserverReportsTheOwnerOfTheFirstQuery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.lateClient(10*time.Millisecond), w.client()
		_, s := observe(t, observing.testClient)
		time.Sleep(time.Second)
		s.want(t, "→")
		observing.losing.Store(true)
		g.take(t, "a", time.Hour)
		synctest.Wait()
		observing.losing.Store(false)
		lastQuery := w.start.Add(10*time.Millisecond + queryEvery + aheadQueries*aheadPause)
		time.Sleep(time.Until(lastQuery) - time.Millisecond)
		s.want(t)
		g.drop(t, "a")
		g.take(t, "b", time.Hour)
		g.drop(t, "b")
		g.take(t, "c", time.Hour)
		time.Sleep(time.Millisecond)
		s.want(t, "→a")
		time.Sleep(time.Minute)
		s.want(t, "a→", "→b", "b→", "→c")
	})
}

func TestObserverFirstReportsWhenItsSubscriptionIsConfirmed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.lateClient(time.Second), w.client()
		g.take(t, "a", time.Hour)
		_, s := observe(t, observing.testClient)
		time.Sleep(time.Second / 2)
		s.want(t)
		time.Sleep(time.Second / 2)
		s.want(t, "→a")
		g.drop(t, "a")
		g.take(t, "a", time.Hour)
		time.Sleep(time.Minute)
		s.want(t, "a→", "→a")
	})
}

func TestObserverReportsNoticesThatComeDuringItsFirstQuery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.client(), w.client()
		observing.slow(time.Second, 0)
		_, s := observe(t, observing)
		for !w.subscribed(simba.EventChannel("job")) {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait() // the query is in flight
		for _, id := range []string{"a", "b", "c"} {
			g.take(t, id, time.Hour)
			g.drop(t, id)
		}
		s.want(t)
		time.Sleep(time.Minute)
		s.want(t, "→a", "a→", "→b", "b→", "→c", "c→")
	})
}

// A notice arrives before the reply to the first query, so the Observer first reports the owner in
// the notice. It must not take a later reply for the first.
func TestObserverTakesNoOwnerFromAQueryAfterItsFirstNotice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.lateClient(10*time.Millisecond), w.client()
		observing.slow(time.Second, 0)
		_, s := observe(t, observing.testClient)
		for !w.subscribed(simba.EventChannel("job")) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // the query is in flight
		g.take(t, "a", time.Hour)
		for s.count() == 0 {
			time.Sleep(time.Millisecond)
		}
		observing.slow(0, 0)
		time.Sleep(queryEvery - 5*time.Millisecond)
		// these changes come 5 ms before the next query, their notices 5 ms after it
		for _, id := range []string{"a", "b", "c"} {
			g.drop(t, id)
			g.take(t, string(id[0]+1), time.Hour)
		}
		time.Sleep(time.Minute)
		s.want(t, "→a", "a→", "→b", "b→", "→c", "c→", "→d")
	})
}

func TestObserverDropsOnlyTheTenuresOfAGap(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.lateClient(30*time.Millisecond), w.client()
		observing.slow(25*time.Millisecond, 25*time.Millisecond)
		_, s := observe(t, observing.testClient)
		time.Sleep(time.Second)
		for i := range 300 {
			if i == 150 {
				observing.cut()
			}
			g.take(t, "a", time.Hour)
			time.Sleep(time.Duration(i%7) * 8 * time.Millisecond)
			g.drop(t, "a")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		jumps := 0
		for i, st := range s.states[1:] {
			before := s.states[i] // the range begins with s.states[1]
			next := before.Before.Token + 1
			if free := before.After.IsZero(); free && st.After.Token != next || !free && !st.After.IsZero() {
				jumps++
			}
		}
		last := s.states[len(s.states)-1]
		if jumps > 1 || last.Before.Token != 300 || !last.After.IsZero() {
			t.Errorf("%d changes in %q skip tenures, want at most one; the last change is %+v", jumps, s.seen, last)
		}
	})
}

func TestObserverReportsChangesFasterThanReplies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.client(), w.client()
		_, s := observe(t, observing)
		s.want(t, "→")
		observing.slow(50*time.Millisecond, 50*time.Millisecond)
		var want []string
		for range maxEvents * 2 / 3 { // more events than the Observer keeps until OnChange returns
			g.take(t, "a", time.Minute)
			time.Sleep(time.Millisecond)
			g.drop(t, "a")
			want = append(want, "→a", "a→")
		}
		time.Sleep(time.Minute)
		s.want(t, want...)
	})
}

func TestObserverReportsTheLastChangeOfAGapAndThenEach(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.lateClient(10*time.Millisecond), w.client()
		g.take(t, "a", time.Hour)
		_, s := observe(t, observing.testClient)
		time.Sleep(time.Second)
		s.want(t, "→a")
		observing.connect(nil)
		observing.cut()
		for _, id := range []string{"a", "b", "c"} {
			g.drop(t, id)
			g.take(t, string(id[0]+1), time.Hour)
		}
		time.Sleep(20 * time.Second)
		observing.connect(w.server)
		time.Sleep(2 * redialPauseMax)
		s.want(t, "a→d")
		g.drop(t, "d")
		g.take(t, "e", time.Hour)
		time.Sleep(10 * time.Millisecond)
		s.want(t, "d→", "→e")
	})
}
