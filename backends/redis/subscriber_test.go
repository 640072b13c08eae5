package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestSubscriberIsRestoredThoughChannelIsRemoved(t *testing.T) {
	for name, remove := range map[string]func(r *subscriber){
		"swept": func(r *subscriber) {
			r.sweep(time.Now().Add(time.Hour), func(n string, _ bool) bool { return n == "a" })
		},
		"unsubscribed": func(r *subscriber) { r.unsubscribe("b") },
		"refused":      func(r *subscriber) { r.refuse(nil) },
	} {
		resubscribed := 0
		r := newSubscriber(nil, time.Second)
		r.onConfirmed, r.onResubscribed = func(string) {}, func() { resubscribed++ }
		r.subscribe("a", false)
		r.subscribe("b", false)
		for _, s := range r.channels { // as connect does
			s.initial = true
		}
		r.awaited, r.unanswered = 2, []subscribeCommand{{[]string{"a"}, 1}, {[]string{"b"}, 1}}
		r.onSubscribed("a")
		if resubscribed != 0 {
			t.Errorf("onResubscribed was called before b was %s", name)
		}
		remove(r)
		if resubscribed != 1 {
			t.Errorf("after b was %s, onResubscribed has been called %d times, want 1", name, resubscribed)
		}
	}
}

func TestRefusedChannelPreventsNoOtherSubscription(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	err := c.Do(t.Context(), "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "resetchannels",
		"&simba-server:*", "&simba:{ok}*", "&simba-events:{ok}*").Err()
	must(t, err)
	e := newListener()
	b, err := Open(t.Context(), Options{URL: "redis://u:p@" + s.Addr, Notices: e, Timeout: 500 * time.Millisecond})
	must(t, err)
	defer b.Close()
	e.subscribe(t, b, "simba:{ok}")
	_, err = b.Subscribed(t.Context(), "simba:{no}", false)
	if err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Subscribed to a channel without the right: %v; want NOPERM", err)
	}
	e.open("simba:{no}") // so that no sweep unsubscribes from it
	r := b.subs.all()[0]
	must(t, c.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	until(t, "the subscriber has noticed the broken connection", func() bool { return !r.confirmed("simba:{ok}") })
	until(t, "all allowed channels are confirmed", func() bool {
		r.mu.Lock()
		awaited := r.awaited
		r.mu.Unlock()
		return awaited == 0 && r.confirmed("simba:{ok}") && r.confirmed(b.subs.serverChannel())
	})
}

func TestReservationNoticeLostByInterruptionIsRepeated(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute)
	c := clientOf(t, s.Addr)
	const channel = "simba:{m}:p"
	e.subscribe(t, b, channel)
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "p", time.Minute, nil)
	// Another connection receives the notice to p, and ends.
	r := b.subs.subscriberForChannel(channel)
	r.unsubscribe(channel)
	lost := c.Subscribe(t.Context(), channel)
	if _, err := lost.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the server has unsubscribed from p's channel", func() bool { return c.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
	release(t, b, "m", "a")
	_ = lost.Close()
	r.subscribe(channel, false)
	until(t, "the server has subscribed to p's channel", func() bool { return r.confirmed(channel) })
	must(t, c.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	e.receive(t, channel, is("released@@a"))
	if o, _ := acquire(t, b, "m", "p", time.Minute, nil); o.Status != simba.StatusAcquired {
		t.Errorf("ACQUIRE of p, which was notified: %+v; want acquired", o)
	}
}

// After an interruption the server repeats notices that its channels may have missed. A new channel
// has missed none.
func TestNewChannelDoesNotCountAsInterrupted(t *testing.T) {
	r := newSubscriber(nil, time.Second)
	resubscribed := 0
	r.onConfirmed, r.onResubscribed = func(string) {}, func() { resubscribed++ }
	r.subscribe("new", false)
	r.onSubscribed("new")
	if got := r.interrupted(); len(got) != 0 || resubscribed != 0 {
		t.Errorf("a new channel: interrupted %v, resubscribed %d times; want neither", got, resubscribed)
	}
	r.subscribe("moved", false)
	r.markInterrupted("moved")
	if got := r.interrupted(); len(got) != 0 {
		t.Errorf("a channel that is not confirmed yet: interrupted %v, want none", got)
	}
	r.onSubscribed("moved")
	got := r.interrupted()
	if len(got) != 1 || got["moved"] != 1 || resubscribed != 1 {
		t.Errorf("a channel that moved: interrupted %v, resubscribed %d times; want both once", got, resubscribed)
	}
	r.markInterrupted("moved") // before the server has caught up
	r.markCaughtUp("moved", got["moved"])
	if got := r.interrupted(); got["moved"] != 2 {
		t.Errorf("after a second interruption of the channel \"moved\", interrupted returns %v, want the count 2 for it", got)
	}
	r.markCaughtUp("moved", 2)
	if got := r.interrupted(); len(got) != 0 {
		t.Errorf("after markCaughtUp: interrupted %v, want none", got)
	}
}
