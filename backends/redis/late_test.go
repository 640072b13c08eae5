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
	"github.com/simba-resp/simba-resp/backends/proxy"
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
		must(t, request(t.Context())) // from now on Redis knows the script
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
	p := &pipeline{clock: proxy.NewClock()}
	at := time.Now()
	if got := p.deadlineAtNode(at); got != noDeadline {
		t.Errorf("the deadline before any reply is %s; want none", got)
	}
	p.clock.Learn(1000, at.Add(-time.Second), at) // Redis' clock showed 1000 at some time in the last second
	if got := p.deadlineAtNode(at.Add(300 * time.Millisecond)); got != "1299" {
		t.Errorf("the deadline in 300 ms is %s; want 1299, which is not too late", got)
	}
}
