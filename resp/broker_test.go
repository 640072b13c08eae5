package resp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMessagesReachTheirSubscribers(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: pubsub()})
		b := s.Broker()
		if b.Any() || b.Publish("news", "x") != 0 {
			t.Error("a new broker has subscribers")
		}
		channel, pattern, shard := dial(t, s), dial(t, s), dial(t, s)
		channel.call("SUBSCRIBE news other\r\n", confirmation("subscribe", "news", 1)+confirmation("subscribe", "other", 2))
		pattern.call("PSUBSCRIBE n*\r\n", confirmation("psubscribe", "n*", 1))
		shard.call("SSUBSCRIBE news\r\n", confirmation("ssubscribe", "news", 1))

		if n := b.Publish("news", "one"); n != 2 {
			t.Errorf("Publish counts %d receivers, want 2", n)
		}
		if n := b.PublishCountExact("news", "two"); n != 1 {
			t.Errorf("PublishCountExact counts %d subscribers, want 1", n)
		}
		if n := b.PublishShard("news", "three"); n != 1 {
			t.Errorf("PublishShard counts %d receivers, want 1", n)
		}
		channel.expect(message("news", "one") + message("news", "two"))
		pattern.expect(bulk("pmessage", "n*", "news", "one") + bulk("pmessage", "n*", "news", "two"))
		shard.expect(bulk("smessage", "news", "three"))

		if got := b.Channels(KindChannel, ""); !slices.Equal(got, []string{"news", "other"}) {
			t.Errorf("all channels are %v, want news and other", got)
		}
		if got := b.Channels(KindChannel, "o*"); !slices.Equal(got, []string{"other"}) {
			t.Errorf("channels that match o* are %v, want other", got)
		}
		if b.PatternCount() != 1 || b.Subscribers(KindChannel, "news") != 1 || b.Subscribers(KindChannel, "n*") != 0 || s.Stats().Subscribers != 3 {
			t.Errorf("PatternCount is %d, Subscribers of news and n* are %d and %d, Stats has %d subscribers; want 1, 1, 0 and 3", b.PatternCount(), b.Subscribers(KindChannel, "news"), b.Subscribers(KindChannel, "n*"), s.Stats().Subscribers)
		}
		for _, cl := range []*client{channel, pattern, shard} {
			cl.Close()
		}
		synctest.Wait()
		if b.Any() || s.Stats().Subscribers != 0 || len(b.Channels(KindChannel, "")) != 0 || b.PatternCount() != 0 {
			t.Error("subscriptions remain after their connections have ended")
		}
	})
}

func TestMessagesArePushesInRESP3(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: pubsub()})
		two, three := dial(t, s), dial(t, s)
		two.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		three.call("HELLO 3\r\nSUBSCRIBE a\r\n", "+PROTO\r\n>"+confirmation("subscribe", "a", 1)[1:])
		s.Broker().Publish("a", "x")
		two.expect(message("a", "x"))
		three.expect(">" + message("a", "x")[1:])
		three.call("PING\r\n", "+PONG\r\n")
	})
}

func TestSubscribeConfirmationPrecedesMessages(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		durable := make(chan struct{})
		h := &script{
			commands: pubsub(),
			commit:   func() error { <-durable; return nil },
		}
		s := NewServer(committing(h), h)
		cl := dial(t, s)
		cl.send("SUBSCRIBE a\r\nPING\r\n")
		synctest.Wait() // the client is subscribed, and its batch waits for Commit
		if s.Broker().Publish("a", "early") != 1 {
			t.Error("the client is not subscribed before its confirmation")
		}
		cl.expectSilence()
		close(durable)
		cl.expect(confirmation("subscribe", "a", 1) + "+PONG\r\n" + message("a", "early"))
	})
}

func TestNoMessageFollowsAnUnsubscribeConfirmation(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		durable := make(chan struct{}, 1)
		durable <- struct{}{}
		commands := pubsub()
		var b *Broker
		commands["LEAVE"] = func(c *Conn, _ [][]byte) {
			// LEAVE unsubscribes from two channels, and publishes before, between and afterwards.
			b.Publish("a", "3")
			c.Unsubscribe(KindChannel, "a")
			b.Publish("b", "too late: the command has begun")
			c.Unsubscribe(KindChannel, "b")
			b.Publish("c", "4")
			c.Reply().Simple("LEFT")
		}
		h := &script{commands: commands, commit: func() error { <-durable; return nil }}
		s := NewServer(committing(h), h)
		b = s.Broker()
		cl := dial(t, s)
		cl.call("SUBSCRIBE a b c\r\n", confirmation("subscribe", "a", 1)+confirmation("subscribe", "b", 2)+confirmation("subscribe", "c", 3))
		synctest.Wait()
		b.Publish("a", "1") // the pusher blocks while it writes this
		synctest.Wait()
		b.Publish("b", "2")
		cl.send("PING\r\nLEAVE\r\nPING\r\nUNSUBSCRIBE c\r\n")
		synctest.Wait() // the batch waits for Commit, and the pusher still blocks
		cl.expect(message("a", "1"))
		durable <- struct{}{}
		cl.expect("+PONG\r\n")
		// The messages and the replies of the batch have one order. Message 2 may be anywhere
		// before the reply to LEAVE. Message 4 must precede the confirmation of UNSUBSCRIBE c.
		cl.expect(message("b", "2") + message("a", "3") + "+LEFT\r\n+PONG\r\n" + message("c", "4") + confirmation("unsubscribe", "c", 0))
		cl.expectSilence()
		if c := s.Conns()[0]; c.OutputQueued() != 0 {
			t.Errorf("%d bytes are still queued for output", c.OutputQueued())
		}
	})
}

func TestHelloComesAfterMessagesQueuedBeforeIt(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		var b *Broker
		commands := pubsub()
		commands["PUBLISH"] = func(c *Conn, args [][]byte) {
			c.Reply().Int(int64(b.Publish("a", string(args[1]))))
		}
		s := NewServer(Config{}, &script{commands: commands})
		b = s.Broker()
		cl := dial(t, s)
		cl.call("SUBSCRIBE a\r\nPUBLISH 1\r\nHELLO 3\r\nPUBLISH 2\r\n",
			confirmation("subscribe", "a", 1)+":1\r\n"+message("a", "1")+"+PROTO\r\n:1\r\n>"+message("a", "2")[1:])
	})
}

func TestSlowSubscriberIsDisconnected(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{Limits: Limits{PushQueue: 10_000}}, &script{commands: pubsub()})
		slow, fast := dial(t, s), dial(t, s)
		slow.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		fast.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		payload := strings.Repeat("x", 1000)
		start := time.Now()
		for range 100 {
			s.Broker().Publish("a", payload)
			fast.expect(message("a", payload))
		}
		synctest.Wait()
		if d := time.Since(start); d != 0 {
			t.Errorf("the publisher, or the other subscriber, waited %v", d)
		}
		if n := s.Stats().SlowCut; n != 1 {
			t.Errorf("the server disconnected %d slow subscribers, want 1", n)
		}
		if n := s.Broker().Subscribers(KindChannel, "a"); n != 1 {
			t.Errorf("%d subscribers are left, want 1", n)
		}
		fast.call("PING\r\n", "+PONG\r\n")
	})
}

func TestSlowSubscriberBlockedInRepliesIsDisconnected(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		s := NewServer(Config{Limits: Limits{PushQueue: 10_000}}, &script{commands: pubsub(), closed: func(*Conn) { ended <- time.Now() }})
		cl := dial(t, s)
		cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		start := time.Now()
		cl.send("PING\r\n") // the client does not read the reply
		synctest.Wait()
		for s.Broker().Publish("a", strings.Repeat("x", 1000)) > 0 {
		}
		if d := (<-ended).Sub(start); d != 0 {
			t.Errorf("the server closed the connection %v after the overflow, want at once", d)
		}
	})
}

func TestStuckSubscriberTimesOutBeforeItsQueueIsFull(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		s := NewServer(Config{Limits: Limits{WriteTimeout: 10 * time.Second}}, &script{commands: pubsub(), closed: func(*Conn) { ended <- time.Now() }})
		cl := dial(t, s)
		cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		start := time.Now()
		s.Broker().Publish("a", "x")
		if d := (<-ended).Sub(start); d < 10*time.Second || d > 15*time.Second {
			t.Errorf("the server closed the connection after %v, want 10 to 15 s", d)
		}
		if s.Stats().SlowCut != 1 {
			t.Error("the server did not count the slow subscriber")
		}
	})
}

func TestClosedConnectionDropsPushes(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		broken := false
		h := &script{
			commands: pubsub(),
			commit: func() error {
				if broken {
					return errors.New("disk full")
				}
				return nil
			},
			closed: func(*Conn) { ended <- time.Now() },
		}
		s := NewServer(committing(h), h)
		cl := dial(t, s)
		cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		s.Broker().Publish("a", "x") // the pusher blocks in its write
		synctest.Wait()
		start := time.Now()
		broken = true
		cl.send("PING\r\n")
		if d := (<-ended).Sub(start); d != 0 {
			t.Errorf("the connection ended %v after the failed commit, want at once", d)
		}
	})
}

func TestMonitorsReceivePushes(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"MONITOR": func(c *Conn, _ [][]byte) {
				c.HoldPushes()
				c.Push([]byte("+first\r\n"))
				c.Reply().Simple("OK")
			},
		}}
		s := NewServer(Config{}, h)
		cl := dial(t, s)
		cl.call("MONITOR\r\n", "+OK\r\n+first\r\n")
		synctest.Wait()
		c := s.Conns()[0]
		for i := range 3 {
			if !c.Push([]byte(fmt.Sprintf("+%d\r\n", i))) {
				t.Error("Push refused an open connection")
			}
		}
		cl.expect("+0\r\n+1\r\n+2\r\n")
		for c.Push(make([]byte, 10_000)) {
		}
		synctest.Wait()
		if s.Stats().SlowCut != 1 {
			t.Error("the overflow did not disconnect the monitor")
		}
		if c.Push([]byte("+late\r\n")) {
			t.Error("Push succeeded after the end of the connection")
		}
	})
}

func TestRepliesAndMessagesAreWholeFrames(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		const rounds = 2000
		s := NewServer(Config{}, &script{commands: pubsub()})
		cl := dial(t, s)
		cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		go func() {
			for i := range rounds {
				s.Broker().Publish("a", fmt.Sprint(i))
			}
		}()
		go func() {
			for range rounds {
				cl.Write([]byte("PING\r\n"))
			}
		}()
		in := newFrames(cl)
		messages, pongs := 0, 0
		for messages < rounds || pongs < rounds {
			switch frame := in.next(t); frame {
			case "+PONG\r\n":
				pongs++
			case message("a", fmt.Sprint(messages)):
				messages++
			default:
				t.Fatalf("frame after %d messages and %d replies is %q, want the next message or +PONG", messages, pongs, frame)
			}
		}
	})
}

func TestShutdownSendsQueuedMessages(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: pubsub()})
		cl := dial(t, s)
		cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		want := ""
		for i := range 10 {
			s.Broker().Publish("a", fmt.Sprint(i))
			want += message("a", fmt.Sprint(i))
		}
		go stopServer(t, s)
		synctest.Wait()
		cl.expectEnd(want)
	})
}
