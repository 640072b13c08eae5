package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestAbandonedRequestDoesNothingLater(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	for name, request := range map[string]func(ctx context.Context) error{
		"release": func(ctx context.Context) error {
			_, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"})
			return err
		},
		"break": func(ctx context.Context) error {
			_, _, err := b.Break(ctx, "m", "")
			return err
		},
	} {
		o := eventually(t, b, "m", "a")
		ran := commandCalls(t, s, "evalsha")
		s.Pause()
		lost := (*simba.UnavailableError)(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		if err := request(ctx); !errors.As(err, &lost) {
			t.Errorf("%s at a stopped Redis: %v; want an UnavailableError", name, err)
		}
		cancel()
		s.Resume()
		until(t, "the request has reached redis", func() bool { return commandCalls(t, s, "evalsha") > ran })
		if now := eventually(t, b, "m", "a"); now.Status != simba.StatusRenewed || now.Token != o.Token {
			t.Errorf("%s ran after its deadline: the tenure was %+v, then ACQUIRE returned %+v", name, o, now)
		}
	}
}

// commandCalls returns how often Redis has run a command, also in scripts.
func commandCalls(t *testing.T, s *stores.Server, command string) int {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	info, err := c.Info(t.Context(), "commandstats").Result()
	must(t, err)
	_, rest, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	text, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(text)
	return n
}

func TestDeadlineAtNodeIsNotLaterThanDeadline(t *testing.T) {
	var c clock
	at := time.Now()
	if got := c.atNode(at); got != noDeadline {
		t.Errorf("atNode before any reply: %s; want no deadline", got)
	}
	c.update(1000, at.Add(-time.Second)) // Redis' clock showed 1000 at some time in the last second
	last := c.last.Load()
	if got := c.atNode(last.at.Add(300 * time.Millisecond)); got != "1300" {
		t.Errorf("atNode after 300 ms: %s; want 1300", got)
	}
	c.update(5000, time.Now().Add(-time.Minute))
	if c.last.Load() != last {
		t.Error("a reading replaced a better one")
	}
	c.update(2000, time.Now())
	if c.last.Load().millis != 2000 {
		t.Error("a better reading was ignored")
	}
}
