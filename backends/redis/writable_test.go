package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// The write check must not change a key of another program, whatever its type.
func TestWriteCheckChangesNothing(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	acquire(t, b, "m", "a", time.Minute, nil)
	keys := []string{"simba:{m}:proof", "simba:{0}:proof"}
	for _, theirs := range [][]any{
		{"SET", "", "x"}, {"SET", "", ""}, {"RPUSH", "", "x"}, {"SADD", "", "x", ""}, {"HSET", "", "", "x"},
		{"ZADD", "", "1", "", "2", "x"}, {"XADD", "", "1-1", "x", "y"},
	} {
		before := make(map[string]string)
		for _, key := range keys {
			c.Del(t.Context(), key)
			theirs[1] = key
			must(t, c.Do(t.Context(), theirs...).Err())
			before[key] = c.Dump(t.Context(), key).Val()
		}
		unchanged := func(what string) {
			t.Helper()
			for _, key := range keys {
				if now := c.Dump(t.Context(), key).Val(); now != before[key] || now == "" {
					t.Errorf("%s changed the key %s, written by %s, from %q to %q",
						what, key, theirs[0], before[key], now)
				}
			}
		}
		for _, q := range requests {
			if err := q.run(t.Context(), b); err != nil {
				t.Errorf("%s, after another program has changed the proof key by %s: %v; want no error", q.name, theirs[0], err)
			}
			unchanged(q.name)
		}
		scan(t, b)
		unchanged("SCAN")
		for _, script := range []string{writeCheckLua, subscriberCountLua} {
			if _, err := b.up.eval(t.Context(), b.up.client, script, "a channel"); err != nil {
				t.Error(err)
			}
			unchanged(script)
		}
		serve(t, "redis://"+s.Addr, noNotices{})
		unchanged("a start")
		c.ConfigSet(t.Context(), "maxmemory", "1")
		for _, q := range requests {
			_ = q.run(t.Context(), b)
			unchanged(fmt.Sprint(q.name, " of a full Redis"))
		}
		c.ConfigSet(t.Context(), "maxmemory", "0")
	}
}
