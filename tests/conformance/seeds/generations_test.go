package seeds_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestScriptsOfEveryGenerationRunOnRedis(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: stores.Redis(t).Addr})
	t.Cleanup(func() { rdb.Close() })
	for _, g := range seeds.Generations {
		t.Run(g.Name, func(t *testing.T) {
			mutex := "m" + g.Name
			run := func(want any, s seeds.Script, args ...any) {
				t.Helper()
				got, err := rdb.Eval(t.Context(), s.Source, s.Keys(mutex), args...).Result()
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("script with arguments %v: %v, %v; want %v", args, got, err, want)
				}
			}
			free, state := any([]any{"", int64(0), int64(0)}), func(owner string, ms, token int64) any {
				if !g.Tokens {
					token = 0
				}
				return []any{owner, ms, token}
			}
			if g.Queues {
				free, state = "@@", func(owner string, ms, _ int64) any { return fmt.Sprint(owner, "@@", ms) }
			}
			run(free, g.Guard, "a", 60_000)
			run(state("a", 60_000, 1), g.Acquire, "a", 60_000)
			run(state("a", 90_000, 1), g.Guard, "a", 90_000)
			// A key without an expiry always has -1 ms left.
			rdb.Persist(t.Context(), seeds.Lease(mutex))
			run(state("a", -1, 1), g.Acquire, "b", 60_000)
			run(int64(0), g.Release, "c")
			if ms := rdb.PTTL(t.Context(), seeds.Token(mutex)).Val(); g.Tokens && ms.Milliseconds() <= 60_000 {
				t.Errorf("the token expires in %v, want more than 60 s after a renewal for 90 s", ms)
			}
			run(int64(1), g.Release, "a")
			run(state("b", 60_000, 2), g.Acquire, "b", 60_000)
			run(int64(1), g.Release, "b")
			if n := rdb.Exists(t.Context(), seeds.Lease(mutex), seeds.Token(mutex), seeds.Queue(mutex)).Val(); n != 0 {
				t.Errorf("%d keys are left after the releases, want 0", n)
			}
		})
	}
}
