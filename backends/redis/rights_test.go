package redis

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// Each case removes one right that the user needs.
func TestMissingRightInScriptIsNamedAndEndsWaits(t *testing.T) {
	cases := map[string][]any{
		"the key of the owner":     {"resetkeys", "~simba:{*}:*"},
		"the key of the queue":     {"resetkeys", "~simba:{*}", "~simba:{*}:[^c]*"},
		"the key of the record":    {"resetkeys", "~simba:{*}", "~simba:{*}:[^t]*"},
		"the key of waiters":       {"resetkeys", "~simba:{*}", "~simba:{*}:[^w]*"},
		"the channel of the mutex": {"resetchannels", "&simba-server:*", "&simba-events:*"},
		"the channel of events":    {"resetchannels", "&simba-server:*", "&simba:*"},
	}
	for _, s := range []*script{
		acquireScript, guardScript, releaseScript, breakScript, reconcileScript, confirmScript, leaveScript, queueScript,
	} {
		for _, call := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(s.text, -1) {
			cases[call[1]] = []any{"-" + strings.ToLower(call[1])}
		}
	}
	for name, harm := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stores.Redis(t)
			c := redis.NewClient(&redis.Options{Addr: s.Addr})
			defer c.Close()
			allow := func(words ...any) {
				t.Helper()
				must(t, c.Do(t.Context(), append([]any{"ACL", "SETUSER", "simba"}, words...)...).Err())
			}
			allow("reset", "on", ">secret", "~simba:*", "resetchannels", "&simba*", "+@all", "-@dangerous", "+info", "+config|get")
			b := serve(t, "redis://simba:secret@"+s.Addr, noNotices{})

			w := newWaiter()
			acquire(t, b, "waited", "a", time.Minute, nil)
			_, ticket := acquire(t, b, "waited", "w", time.Minute, w)
			named, answered := 0, 0
			for _, owner := range []string{"", "c", "a"} {
				c.Del(t.Context(), "simba:{m}", "simba:{m}:tenure", "simba:{m}:contender", "simba:{m}:waiting")
				if owner != "" {
					acquire(t, b, "m", owner, time.Minute, nil)
					acquire(t, b, "m", "p", time.Minute, nil)
				}
				allow(harm...)
				for _, q := range requests {
					switch err := q.run(t.Context(), b); {
					case err == nil:
						answered++
					default:
						named++
						mustBeMisconfigured(t, q.name+" where the owner is "+owner, err, "user")
					}
				}
				allow("allkeys", "allchannels", "+@all")
			}
			allow(harm...)
			endOwner(t, b, c, "waited")
			w.await(t)
			o, err := ticket.End(simba.EndWoken)
			refusal := (*simba.MisconfiguredError)(nil)
			if err == nil && o.Status != simba.StatusAcquired || err != nil && !errors.As(err, &refusal) {
				t.Errorf("the wait ended with %+v, %v; want acquired or a MisconfiguredError", o, err)
			}
			t.Logf("%d answered, %d refused, the wait ended with %v, %v", answered, named, o.Status, err)
		})
	}
}
