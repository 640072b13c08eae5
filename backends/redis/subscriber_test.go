package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

func TestARadioHasBegunThoughAChannelIsGivenUpMeanwhile(t *testing.T) {
	for name, give := range map[string]func(r *subscriber){
		"swept": func(r *subscriber) {
			r.sweep(time.Now().Add(time.Hour), func(n string, _ bool) bool { return n == "a" })
		},
		"dropped": func(r *subscriber) { r.unsubscribe("b") },
		"refused": func(r *subscriber) { r.refuse(nil) },
	} {
		begun := 0
		r := newSubscriber(nil, time.Second)
		r.tuned, r.begun = func(string) {}, func() { begun++ }
		r.subscribe("a", false)
		r.subscribe("b", false)
		for _, s := range r.channels { // as by connect
			s.initial = true
		}
		r.missing, r.sent = 2, []batch{{[]string{"a"}, 1}, {[]string{"b"}, 1}}
		r.confirm("a")
		if begun != 0 {
			t.Errorf("%s: begun without b", name)
		}
		give(r)
		if begun != 1 {
			t.Errorf("b was %s: begun %d times", name, begun)
		}
	}
}

func TestAChannelThatRedisRefusesTakesNoOtherWithIt(t *testing.T) {
	s := stores.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	err := c.Do(t.Context(), "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "resetchannels",
		"&simba-server:*", "&simba:{ok}*", "&simba-events:{ok}*").Err()
	if err != nil {
		t.Fatal(err)
	}
	e := newListener()
	b, err := Open(t.Context(), Options{URL: "redis://u:p@" + s.Addr, Notices: e, Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	e.listen(t, b, "simba:{ok}")
	_, err = b.Subscribed(t.Context(), "simba:{no}", false)
	if err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("a channel that is not allowed: %v", err)
	}
	e.open("simba:{no}") // so that no sweep gives it up
	r := b.subs.all()[0]
	if err := c.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "the connection is known to be broken", func() bool { return !r.confirmed("simba:{ok}") })
	until(t, "all that may be heard is", func() bool {
		r.mu.Lock()
		missing := r.missing
		r.mu.Unlock()
		return missing == 0 && r.confirmed("simba:{ok}") && r.confirmed(b.subs.serverChannel())
	})
}

func TestAPollingWaiterIsToldAgainOfATurnThatABreakSwallowed(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	b.SetHandoffWindow(time.Minute)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	const channel = "simba:{m}:p"
	e.listen(t, b, channel)
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "p", time.Minute, nil)
	// The message goes to a connection that takes it along.
	r := b.subs.subscriberFor(channel)
	r.unsubscribe(channel)
	lost := c.Subscribe(t.Context(), channel)
	if _, err := lost.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "p is not heard here", func() bool { return c.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
	release(t, b, "m", "a")
	_ = lost.Close()
	r.subscribe(channel, false)
	until(t, "p is heard here", func() bool { return r.confirmed(channel) })
	if err := c.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	e.hear(t, channel, is("released@@a"))
	if o, _ := acquire(t, b, "m", "p", time.Minute, nil); o.Status != simba.StatusAcquired {
		t.Errorf("%+v", o)
	}
}

// A turn is told again only to those whose channel was away: a new one is looked after by
// whoever asked for it, and to tell it twice would be wrong.
func TestOnlyAChannelThatWasAwayIsBroken(t *testing.T) {
	r := newSubscriber(nil, time.Second)
	begun := 0
	r.tuned, r.begun = func(string) {}, func() { begun++ }
	r.subscribe("new", false)
	r.confirm("new")
	if got := r.interrupted(); len(got) != 0 || begun != 0 {
		t.Errorf("new: %v, begun %d times", got, begun)
	}
	r.subscribe("moved", false)
	r.markInterrupted("moved")
	if got := r.interrupted(); len(got) != 0 {
		t.Errorf("not heard yet: %v", got)
	}
	r.confirm("moved")
	got := r.interrupted()
	if len(got) != 1 || got["moved"] != 1 || begun != 1 {
		t.Errorf("moved: %v, begun %d times", got, begun)
	}
	r.markInterrupted("moved") // again, while the first is made good
	r.markCaughtUp("moved", got["moved"])
	if got := r.interrupted(); got["moved"] != 2 {
		t.Errorf("broken again: %v", got)
	}
	r.markCaughtUp("moved", 2)
	if got := r.interrupted(); len(got) != 0 {
		t.Errorf("mended: %v", got)
	}
}
