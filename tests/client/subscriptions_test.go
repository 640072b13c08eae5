package clienttest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/resp"
)

func TestWatchesOfAMutexShareASubscription(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, other := w.client(), w.client()
		first, second, third := g.watch(t, "job"), g.watch(t, "job"), g.watch(t, "another")
		other.take(t, "a", time.Hour)
		first.want("=", "+a")
		second.want("=", "+a")
		third.want("=")
		if n := w.broker.Subscribers(resp.KindChannel, simba.EventChannel("job")); n != 1 || g.subscribers() != 1 {
			t.Errorf("there are %d subscriptions on %d connections, want 1 and 1", n, g.subscribers())
		}
		first.end()
		third.end()
		other.drop(t, "a")
		second.want("released")
		if w.subscribed(simba.EventChannel("another")) || !w.subscribed(simba.EventChannel("job")) {
			t.Error("the client is subscribed to another, or not to job, the mutex that it watches")
		}
		second.end()
		synctest.Wait()
		if w.subscribed(simba.EventChannel("job")) {
			t.Error("the client is subscribed to job after its last Watch has ended")
		}
	})
}

// The loop over a Watch is slow, and the server is away.
func TestCloseSubscribesToNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var dials atomic.Int64
		g := w.clientOf("", client.Options{}, func(_ *testClient, o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dials.Add(1) > 1000 {
					panic("too many dials")
				}
				return dial(ctx, network, addr)
			}
		})
		s, end := g.watch(t, "job"), make(chan struct{})
		s.mu.Lock()
		s.pause = time.Minute
		s.mu.Unlock()
		w.client().take(t, "other", time.Hour)
		go func() {
			_ = g.Do(bg, "another", func(context.Context) error { <-end; return nil })
		}()
		synctest.Wait()
		w.stop()
		time.Sleep(time.Second)
		before := dials.Load()
		_ = g.Close()
		if n := dials.Load() - before; n > 2 {
			t.Errorf("the client has dialed %d times during Close, want at most once", n)
		}
		close(end)
		w.begin()
		time.Sleep(time.Minute)
	})
}

func TestIdleConnectionForOutcomesIsClosed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		for range 2 {
			s := g.watch(t, "job")
			a := w.lock(g)
			b := w.waits(g)
			time.Sleep(time.Hour)
			if n := g.subscribers(); n != 2 {
				t.Errorf("there are %d connections for notices and outcomes, want 2", n)
			}
			w.unlock(a)
			w.unlock(b.got(w, 0))
			for range g.Watch(bg, "job") {
				break
			}
			s.end()
			time.Sleep(idleAfter + 2*pingEvery)
			if n := g.subscribers(); n != 1 {
				t.Errorf("%d connections are left, want that for notices", n)
			}
		}
	})
}
