package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestRefusedChannelPreventsNoOtherSubscription(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	err := c.Do(t.Context(), "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "resetchannels",
		"&simba-server:*", "&simba:{ok}*", "&simba-events:{ok}*").Err()
	must(t, err)
	e := newListener()
	b, err := Open(t.Context(), Options{URL: "redis://u:p@" + s.Addr, Options: proxy.Options{Notices: e, Timeout: 500 * time.Millisecond}})
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
		return r.confirmed("simba:{ok}") && r.confirmed(b.subs.serverChannel())
	})
}

// stuckProbe makes each probe wait until the test closes it. go-redis does not respect a cancellation.
type stuckProbe struct{ probing, stuck chan struct{} }

func (p stuckProbe) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" && cmd.Args()[1] == subscriberCountLua {
			select {
			case p.probing <- struct{}{}:
			default:
			}
			<-p.stuck
		}
		return next(ctx, cmd)
	}
}

func (stuckProbe) DialHook(next redis.DialHook) redis.DialHook { return next }
func (stuckProbe) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestProbeWithoutReplyDelaysNoReconnection(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	p := stuckProbe{make(chan struct{}, 1), make(chan struct{})}
	b.up.client.AddHook(p)
	defer close(p.stuck)
	<-p.probing
	r, own := b.subs.all()[0], b.subs.serverChannel()
	before := r.subscribe(own, false)
	must(t, c.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	until(t, "the subscriber has connected again", func() bool { return r.subscribe(own, false) != before && r.confirmed(own) })
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
	wants(t, simba.StatusAcquired, b, "m", "p")
}

func TestChannelOfAContenderThatIsGoneIsUnsubscribed(t *testing.T) {
	s := stores.Redis(t)
	e := newListener()
	b := serve(t, "redis://"+s.Addr, e)
	const wanted, gone = "simba:{m}", "simba:{m}:gone"
	e.subscribe(t, b, wanted)
	_, err := b.Subscribed(t.Context(), gone, false) // by a client that leaves at once
	must(t, err)
	b.subs.sweep(time.Now().Add(time.Hour))
	c := clientOf(t, s.Addr)
	until(t, "the server has unsubscribed from the channel of the contender only", func() bool {
		n := c.PubSubNumSub(t.Context(), wanted, gone).Val()
		return n[wanted] == 1 && n[gone] == 0
	})
}
