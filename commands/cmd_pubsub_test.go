package commands

import (
	"slices"
	"testing"
	"testing/synctest"
)

func message(parts ...string) string { return bulks(parts...) }

func subscribed(word, channel string, n int64) string {
	return "*3\r\n" + bulk(word) + bulk(channel) + integers(n)
}

func TestSubscribersReceivePublishedMessages(t *testing.T) {
	s := newSite(t, Config{})
	sub, pub := s.dial(), s.dial()
	sub.send("SUBSCRIBE a b", "PSUBSCRIBE a*", "SSUBSCRIBE s")
	for _, want := range []string{subscribed("subscribe", "a", 1), subscribed("subscribe", "b", 2), subscribed("psubscribe", "a*", 3), subscribed("ssubscribe", "s", 1)} {
		if got := sub.reply(); got != want {
			t.Errorf("SUBSCRIBE was confirmed by %q, want %q", got, want)
		}
	}
	for _, tt := range []struct {
		command, reply string
		messages       []string
	}{
		{"PUBLISH a hello", ":2\r\n", []string{message("message", "a", "hello"), message("pmessage", "a*", "a", "hello")}},
		{"PUBLISH ab hello", ":1\r\n", []string{message("pmessage", "a*", "ab", "hello")}},
		{"PUBLISH s hello", ":0\r\n", nil},
		{"SPUBLISH s hello", ":1\r\n", []string{message("smessage", "s", "hello")}},
		{"SPUBLISH a hello", ":0\r\n", nil},
	} {
		pub.expect(tt.command, tt.reply)
		for _, want := range tt.messages {
			if got := sub.reply(); got != want {
				t.Errorf("%s: the subscriber got %q, want %q", tt.command, got, want)
			}
		}
	}
	pub.expect("PUBSUB CHANNELS", bulks("a", "b"))
	pub.expect("PUBSUB CHANNELS [^a]", bulks("b"))
	pub.expect("PUBSUB NUMSUB a x", "*4\r\n"+bulk("a")+":1\r\n"+bulk("x")+":0\r\n")
	pub.expect("PUBSUB NUMPAT", ":1\r\n")
	pub.expect("PUBSUB SHARDCHANNELS s*", bulks("s"))
	pub.expect("PUBSUB SHARDNUMSUB s", "*2\r\n"+bulk("s")+":1\r\n")

	sub.send("UNSUBSCRIBE")
	for _, want := range []string{subscribed("unsubscribe", "a", 2), subscribed("unsubscribe", "b", 1)} {
		if got := sub.reply(); got != want {
			t.Errorf("UNSUBSCRIBE was confirmed by %q, want %q", got, want)
		}
	}
	sub.expect("RESET", "+RESET\r\n")
	pub.expect("PUBSUB NUMPAT", ":0\r\n")
}

func TestTheEngineKnowsASubscriberBeforeTheReply(t *testing.T) {
	s := newSite(t, Config{})
	p := s.dial()
	for _, tt := range []struct {
		command string
		calls   string
	}{
		{"SUBSCRIBE simba:{m}:c", "subscribed simba:{m}:c pattern=false"},
		{"SSUBSCRIBE simba:{m}:c", "subscribed simba:{m}:c pattern=false"},
		{"PSUBSCRIBE simba:*", "subscribed simba:* pattern=true"},
		{"SUBSCRIBE simba-events:{m}", "subscribed simba-events:{m} pattern=false"},
	} {
		p.do(tt.command)
		if got := s.backend.takeCalls(); !slices.Equal(got, []string{tt.calls}) {
			t.Errorf("%s: calls %q, want %q", tt.command, got, tt.calls)
		}
	}
	if got := s.backend.commits(); !slices.Contains(got, 77) {
		t.Errorf("the backend committed %v, want 77: the notice to the contender was not durable before the reply", got)
	}
}

func TestNoticesReachAllSubscribersAndCountExactChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{})
		notices := Notices(s.server.Broker())
		if notices.Any() || notices.Publish("a", "x") != 0 {
			t.Error("Notices knows a subscriber before anyone has subscribed")
		}
		exact, shard, pattern := s.dial(), s.dial(), s.dial()
		exact.do("SUBSCRIBE a")
		shard.do("SSUBSCRIBE a")
		pattern.do("PSUBSCRIBE *")
		if got := notices.Publish("a", "x"); got != 2 {
			t.Errorf("Publish returned %d, want 2: a subscriber of a pattern does not count", got)
		}
		for _, tt := range []struct {
			p    *peer
			want string
		}{
			{exact, message("message", "a", "x")},
			{shard, message("smessage", "a", "x")},
			{pattern, message("pmessage", "*", "a", "x")},
		} {
			if got := tt.p.reply(); got != tt.want {
				t.Errorf("a subscriber got %q, want %q", got, tt.want)
			}
		}
		if !notices.Any() || !notices.Subscribed("a") || notices.Subscribed("b") {
			t.Error("Any or Subscribed is wrong: channel a has a subscriber, b has none")
		}
		if got := notices.Publish("b", "x"); got != 0 {
			t.Errorf("Publish counts %d subscribers of a pattern, want 0", got)
		}
		pattern.reply()
	})
}
