package dropin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// several is a script that sets many keys to the same number.
const several = `
redis.call('set', KEYS[1], ARGV[1])
redis.call('hset', KEYS[2], 'n', ARGV[1])
if tonumber(ARGV[1]) % 2 == 0 then redis.call('del', KEYS[3]) end
redis.call('set', KEYS[3], ARGV[1], 'px', 60000)
return redis.call('get', KEYS[1])`

// writer runs the script with growing numbers until the server is killed.
type writer struct {
	a, b, c string
	sent    int64
	done    atomic.Int64 // the last number that got a reply
}

func (w *writer) run(ctx context.Context, rdb *redis.Client) {
	for {
		w.sent++
		got, err := rdb.Eval(ctx, several, []string{w.a, w.b, w.c}, w.sent).Int64()
		if err != nil || got != w.sent {
			return
		}
		w.done.Store(got)
	}
}

func TestAKilledServerKeepsAllOrNothingOfAScript(t *testing.T) {
	t.Parallel()
	const writers, kills = 4, 6
	s := simbatest.Start(t)
	all := make([]*writer, writers)
	for i := range all {
		all[i] = &writer{a: fmt.Sprint("a", i), b: fmt.Sprint("b", i), c: fmt.Sprint("c", i)}
	}
	for range kills {
		goOn := all[0].done.Load() + 20 + rand.Int64N(100)
		var running sync.WaitGroup
		for _, w := range all {
			rdb := connect(t, s)
			running.Go(func() { w.run(t.Context(), rdb) })
		}
		simbatest.Await(t, "the server replies to further scripts", func() bool { return all[0].done.Load() >= goOn })
		s.Kill()
		running.Wait()
		s.Start()
		rdb := connect(t, s)
		for _, w := range all {
			a, b, c := number(t, rdb, "get", w.a), number(t, rdb, "hget", w.b, "n"), number(t, rdb, "get", w.c)
			if a != b || b != c {
				t.Errorf("the server applied a part of a script: the three keys have %d, %d and %d", a, b, c)
			}
			if a < w.done.Load() || a > w.sent {
				t.Errorf("the keys have %d, want %d (the last number with a reply) to %d (the last number sent)", a, w.done.Load(), w.sent)
			}
		}
	}
}
