package clienttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/resp"
)

// watch starts an Observer that reports its changes to s.
func (g *testClient) watch(t *testing.T, mutex string, s *changes) *client.Observer {
	t.Helper()
	o, err := g.NewObserver(client.ObserverConfig{Mutex: mutex, OnChange: s.add})
	must(t, err)
	must(t, o.Start())
	t.Cleanup(func() { _ = o.Stop(context.Background()) })
	synctest.Wait()
	return o
}

// event publishes that a contender has acquired a mutex, on the mutex's event channel.
func event(t *testing.T, g *testClient, mutex, owner string, token uint64) {
	t.Helper()
	eventOf(t, g, simba.EventAcquired, mutex, owner, token)
}

// eventOf publishes an event of the given kind.
func eventOf(t *testing.T, g *testClient, kind simba.EventKind, mutex, owner string, token uint64) {
	t.Helper()
	e := simba.Event{Kind: kind, Mutex: mutex, Owner: owner, Token: token}
	must(t, g.rdb.Publish(context.Background(), simba.EventChannel(mutex), string(e.AppendJSON(nil))).Err())
	synctest.Wait()
}

func TestObserversOfAMutexShareASubscription(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, other := w.client(), w.client()
		var a, b, c changes
		first := g.watch(t, "x", &a)
		second := g.watch(t, "x", &b)
		third := g.watch(t, "y", &c)
		event(t, other, "x", "1", 1)
		event(t, other, "y", "2", 2)
		a.want(t, "→", "→1")
		b.want(t, "→", "→1")
		c.want(t, "→", "→2")
		if n := w.broker.Subscribers(resp.KindChannel, simba.EventChannel("x")); n != 1 || g.subscribers() != 1 {
			t.Errorf("there are %d subscriptions of x on %d connections, want 1 and 1", n, g.subscribers())
		}
		must(t, first.Stop(t.Context()))
		must(t, third.Stop(t.Context()))
		synctest.Wait()
		event(t, other, "x", "3", 3)
		a.want(t)
		b.want(t, "1→3")
		if w.subscribed(simba.EventChannel("y")) || !w.subscribed(simba.EventChannel("x")) {
			t.Error("the client is subscribed to y, or not to x; want x, the mutex of the running Observer")
		}
		must(t, second.Stop(t.Context()))
		must(t, second.Stop(t.Context()))
		synctest.Wait()
		if w.subscribed(simba.EventChannel("x")) {
			t.Error("the client is subscribed to x after its last Observer has stopped")
		}
	})
}

func TestIdleSubscriberConnectionIsClosed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		for range 2 {
			var s changes
			o := g.watch(t, "x", &s)
			s.want(t, "→")
			time.Sleep(time.Hour)
			if n := g.subscribers(); n != 1 {
				t.Errorf("there are %d subscriber's connections, want 1", n)
			}
			must(t, o.Stop(t.Context()))
			time.Sleep(idleAfter + 2*pingEvery)
			if n := g.subscribers(); n != 0 {
				t.Errorf("%d subscriber's connections are left, want 0", n)
			}
			noGoroutineLeft(t)
		}
	})
}

func TestClosedClientReceivesNoNotices(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var s changes
		o := g.watch(t, "x", &s)
		s.want(t, "→")
		for range 2 {
			must(t, g.Close())
		}
		synctest.Wait()
		event(t, w.client(), "x", "1", 1)
		s.want(t)
		if w.subscribed(simba.EventChannel("x")) || g.subscribers() != 0 {
			t.Error("the client is still subscribed, or has a subscriber's connection")
		}
		if err := o.Start(); !errors.Is(err, client.ErrClosed) {
			t.Errorf("Start returns %v, want ErrClosed", err)
		}
	})
}

func TestSubscriptionsUseAnotherConnectionWhenOneIsFull(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var s changes
		for i := range connChannels + 1 {
			g.watch(t, fmt.Sprint(i), &s)
		}
		time.Sleep(time.Second)
		if n := g.subscribers(); n != 2 {
			t.Errorf("there are %d subscriber's connections, want 2", n)
		}
		for i := range connChannels + 1 {
			if !w.subscribed(simba.EventChannel(fmt.Sprint(i))) {
				t.Fatalf("the client is not subscribed to channel %d", i)
			}
		}
	})
}
