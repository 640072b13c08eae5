package simbatest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Subscriber is a client that has subscribed to channels.
type Subscriber struct {
	Messages chan redis.Message // received, but not yet read by Receive

	t    testing.TB
	seen []string // read by Receive, but not yet returned
}

// Subscribe sends SUBSCRIBE or PSUBSCRIBE, and returns when the server has confirmed every channel.
func Subscribe(t testing.TB, s *Server, command string, channels ...any) *Subscriber {
	t.Helper()
	c := Conn(t, s)
	Must(t, c.Send(command, channels...))
	Must(t, c.Flush())
	ps := redis.PubSubConn{Conn: c}
	for range channels {
		if _, ok := ps.Receive().(redis.Subscription); !ok {
			t.Fatalf("the server does not confirm %s %v", command, channels)
		}
	}
	sub := &Subscriber{t: t, Messages: make(chan redis.Message, 1000)}
	go func() {
		for {
			switch m := ps.Receive().(type) {
			case redis.Message:
				sub.Messages <- m
			case error:
				return
			}
		}
	}()
	return sub
}

// Receive returns the first message of the channel that begins with prefix. It keeps other messages
// for later calls. If none arrives within Patience, the test fails.
func (s *Subscriber) Receive(channel, prefix string) string {
	s.t.Helper()
	want := channel + " " + prefix
	deadline := time.After(Patience)
	for {
		i := slices.IndexFunc(s.seen, func(seen string) bool { return strings.HasPrefix(seen, want) })
		if i >= 0 {
			got := s.seen[i]
			s.seen = slices.Delete(s.seen, i, i+1)
			return strings.TrimPrefix(got, channel+" ")
		}
		select {
		case m := <-s.Messages:
			s.seen = append(s.seen, m.Channel+" "+string(m.Data))
		case <-deadline:
			s.t.Fatalf("no message begins with %q; other messages: %q", want, s.seen)
		}
	}
}
