package resp

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

func TestPatternReceivesPublishesAfterItsSubscription(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: pubsub()})
		b := s.Broker()
		first, second := dial(t, s), dial(t, s)
		first.call("PSUBSCRIBE n*\r\n", confirmation("psubscribe", "n*", 1))
		if n := b.Publish("news", "1"); n != 1 {
			t.Errorf("Publish counts %d receivers, want 1", n)
		}
		second.call("PSUBSCRIBE ne*\r\n", confirmation("psubscribe", "ne*", 1))
		if n := b.Publish("news", "2"); n != 2 {
			t.Errorf("after a new pattern Publish counts %d receivers, want 2", n)
		}
		first.expect(bulk("pmessage", "n*", "news", "1") + bulk("pmessage", "n*", "news", "2"))
		second.expect(bulk("pmessage", "ne*", "news", "2"))
		first.Close()
		synctest.Wait()
		if n := b.Publish("news", "3"); n != 1 {
			t.Errorf("after the end of a subscription Publish counts %d receivers, want 1", n)
		}
		second.expect(bulk("pmessage", "ne*", "news", "3"))
	})
}

func TestSubscribingNeverWaitsForAGlob(t *testing.T) {
	b := NewBroker()
	hostile, other := new(Conn), new(Conn)
	hostile.closed.Store(true) // a closed connection receives nothing, so only the match takes time
	glob := "*" + strings.Repeat("a", 2<<10) + "b"
	channel := strings.Repeat("a", 6<<10)
	b.subscribe(hostile, KindPattern, glob)

	published := make(chan struct{})
	go func() {
		defer close(published)
		b.Publish(channel, "x")
	}()
	for b.patterns.Load() == nil {
		runtime.Gosched() // until the publisher has begun
	}
	for joined := 0; ; joined++ {
		select {
		case <-published:
			if joined < 10 {
				t.Errorf("%d subscriptions succeeded while a glob was matched, want at least 10", joined)
			}
			return
		default:
			b.subscribe(other, KindChannel, "a")
			b.unsubscribe(other, KindChannel, "a")
		}
	}
}

func TestPatternIndexFindsAllMatches(t *testing.T) {
	// words are all strings of one to four of these bytes.
	var words []string
	for short := []string{""}; len(short[0]) < 4; {
		var longer []string
		for _, s := range short {
			for _, b := range []string{"a", "b", "*", "?", "[", "]", `\`} {
				longer = append(longer, s+b)
			}
		}
		words, short = append(words, longer...), longer
	}
	topics := make([]*topic, len(words))
	for i, word := range words {
		topics[i] = &topic{name: word}
	}
	index := newPatternIndex(slices.Values(topics))
	for _, channel := range words[:len(words)/7] {
		var want, got []string
		for _, word := range words {
			if Match(word, channel) {
				want = append(want, word)
			}
		}
		for t := range index.matches(channel) {
			got = append(got, t.name)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("for channel %q the index finds the patterns %q, want %q", channel, got, want)
		}
	}
}
