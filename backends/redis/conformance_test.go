package redis

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// opener returns the function by which the suite opens servers at a url.
func opener(url string) conformance.Opener {
	return func(t testing.TB, n simba.Notices, timeout time.Duration) conformance.Backend {
		t.Helper()
		return openSoon(t, Options{URL: url, Options: proxy.Options{Notices: n, Logger: slog.New(slog.DiscardHandler), Timeout: timeout, HandoffWindow: time.Second, QueueGrace: 5 * time.Second}})
	}
}

const suiteTimeout = 2 * time.Second

func TestSingleRedisKeepsTheRules(t *testing.T) {
	s := stores.Redis(t)
	link := stores.NewLink(t, s.Addr)
	conformance.Run(t, conformance.Engine{
		Name: "redis", Shared: true, Link: link, Timeout: suiteTimeout,
		Open:   opener("redis://" + link.Addr()),
		Direct: opener("redis://" + s.Addr),
		Harm: func(t testing.TB, mutex string) func() {
			c := redis.NewClient(&redis.Options{Addr: s.Addr})
			t.Cleanup(func() { _ = c.Close() })
			key, kept := simba.MutexChannel(mutex)+":tenure", "kept:"+mutex
			// One transaction: a script of the server between the two would write the record again.
			_, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Rename(t.Context(), key, kept)
				return p.RPush(t.Context(), key, "another program's").Err()
			})
			must(t, err)
			return func() {
				must(t, c.Rename(t.Context(), kept, key).Err())
			}
		},
	})
}

func TestRedisClusterKeepsTheRules(t *testing.T) {
	c := stores.RedisCluster(t)
	open := opener("redis+cluster://" + strings.Join(c.Addrs, ","))
	conformance.Run(t, conformance.Engine{Name: "redis-cluster", Shared: true, Timeout: suiteTimeout, Open: open})
}

func TestRedisBehindSentinelKeepsTheRules(t *testing.T) {
	s := stores.RedisSentinel(t)
	s.Hold(t) // a failover to a replica that lags may lose leases
	open := opener("redis+sentinel://" + strings.Join(s.SentinelAddrs, ",") + "/" + s.MasterName)
	conformance.Run(t, conformance.Engine{Name: "redis-sentinel", Shared: true, Timeout: suiteTimeout, Open: open})
}

// noNotices is a simba.Notices without subscribers.
type noNotices struct{}

func (noNotices) Publish(string, string) int    { return 0 }
func (noNotices) Subscribed(string) bool        { return false }
func (noNotices) SubscribedPattern(string) bool { return false }
func (noNotices) Any() bool                     { return false }
