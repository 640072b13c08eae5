package client

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ear collects what is heard.
type ear struct {
	mu    sync.Mutex // guards heard
	heard []string
}

func (e *ear) note(n notice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n.fresh {
		n.payload = "(fresh)"
	}
	e.heard = append(e.heard, n.channel+" "+n.payload)
}

// said is what was heard since it was last asked.
func (e *ear) said() string {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() { e.heard = nil }()
	return fmt.Sprint(e.heard)
}

func publish(t *testing.T, g *guest, channel, payload string) {
	t.Helper()
	if err := g.rdb.Publish(context.Background(), channel, payload).Err(); err != nil {
		t.Error(err)
	}
}

func TestListenersOfAChannelShareASubscription(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var a, b ear
		la := g.radio.listen(a.note, "x", "y")
		synctest.Wait()
		lb := g.radio.listen(b.note, "x")
		if got := a.said() + b.said(); got != "[x (fresh) y (fresh)][x (fresh)]" && got != "[y (fresh) x (fresh)][x (fresh)]" {
			t.Error(got)
		}
		other := w.client()
		publish(t, other, "x", "1")
		publish(t, other, "y", "2")
		if got := a.said() + b.said(); got != "[x 1 y 2][x 1]" {
			t.Error(got)
		}
		if n := g.count(); n != 1 {
			t.Errorf("%d connections", n)
		}
		g.radio.leave(la)
		synctest.Wait()
		publish(t, other, "x", "3")
		publish(t, other, "y", "4")
		if got := a.said() + b.said(); got != "[][x 3]" {
			t.Error(got)
		}
		if w.subscribed("y") || !w.subscribed("x") {
			t.Error("the server's subscriptions are not those that are listened to")
		}
		g.radio.leave(lb)
		g.radio.leave(lb)
	})
}

func TestBrokenSubscriptionIsMadeAnewAndSaysSo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var e ear
		defer g.radio.leave(g.radio.listen(e.note, "x"))
		e.said()
		for name, fault := range map[string]func(){
			"cut":     g.cut,
			"restart": w.restart,
			"silence": func() { g.silence(); time.Sleep(time.Minute); g.heal() },
			"freeze":  g.freeze,
			"down":    func() { w.stop(); time.Sleep(time.Hour); w.begin() },
		} {
			fault()
			time.Sleep(3 * pingEvery)
			if got := e.said(); got != "[x (fresh)]" {
				t.Errorf("%s: %s", name, got)
			}
			publish(t, w.client(), "x", name)
			if got := e.said(); got != "[x "+name+"]" {
				t.Errorf("after %s: %s", name, got)
			}
		}
	})
}

func TestNoConnectionIsKeptForNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var e ear
		for range 2 {
			l := g.radio.listen(e.note, "x")
			if got := e.said(); got != "[x (fresh)]" {
				t.Error(got)
			}
			time.Sleep(time.Hour)
			g.radio.leave(l)
			time.Sleep(idleAfter + 2*pingEvery)
			if n := g.count(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
			g.radio.all.Wait() // its goroutines have ended
		}
	})
}

func TestClosedClientHearsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var e ear
		l := g.radio.listen(e.note, "x")
		e.said()
		for range 2 {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
		publish(t, w.client(), "x", "1")
		g.radio.leave(l)
		g.radio.leave(g.radio.listen(e.note, "x"))
		if got := e.said(); got != "[]" {
			t.Error(got)
		}
	})
}

func TestSubscriptionsBeyondOneConnectionTakeAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var e ear
		var all []*listener
		for i := range stationChannels + 1 {
			all = append(all, g.radio.listen(e.note, fmt.Sprint(i)))
		}
		time.Sleep(time.Second)
		if n := g.count(); n != 2 {
			t.Errorf("%d connections", n)
		}
		for i := range stationChannels + 1 {
			if !w.subscribed(fmt.Sprint(i)) {
				t.Fatalf("channel %d is not subscribed to", i)
			}
		}
		for _, l := range all {
			g.radio.leave(l)
		}
	})
}
