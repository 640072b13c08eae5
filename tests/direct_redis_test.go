package tests

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// directTo returns what makes contenders that go straight to the store, as Simba's
// own on the JVM do.
func directTo(b *testing.B, s *shared) connector {
	b.Helper()
	switch s.engine {
	case "redis":
		return directRedis(b, s)
	case "mysql":
		return directMySQL(b, s)
	default:
		return directZooKeeper(b, s)
	}
}

// The scripts of Simba's Redis backend, as its documentation prints them, with the
// lines around them that it leaves out.
var (
	simbaAcquire = goredis.NewScript(`
local mutexKey = KEYS[1]
local contenderQueueKey = mutexKey .. ':contender'
local contenderId = ARGV[1]
local transition = ARGV[2]
local nowTime = redis.call('time')[1]
local succeed = redis.call('set', mutexKey, contenderId, 'nx', 'px', transition)
if succeed then
    redis.call('publish', mutexKey, 'acquired@@' .. contenderId)
    return contenderId .. '@@' .. transition
end
redis.call('zadd', contenderQueueKey, 'nx', nowTime, contenderId)
local ownerId = redis.call('get', mutexKey)
local ttl = redis.call('pttl', mutexKey)
return ownerId .. '@@' .. ttl`)

	simbaRelease = goredis.NewScript(`
local mutexKey = KEYS[1]
local contenderQueueKey = mutexKey .. ':contender'
local contenderId = ARGV[1]
if redis.call('get', mutexKey) ~= contenderId then
    redis.call('zrem', contenderQueueKey, contenderId)
    return 0
end
redis.call('del', mutexKey)
local contenderQueue = redis.call('zrevrange', contenderQueueKey, -1, -1)
if #contenderQueue > 0 then
    local nextContender = contenderQueue[1]
    redis.call('zrem', contenderQueueKey, nextContender)
    local channel = mutexKey .. ':' .. nextContender
    redis.call('publish', channel, 'released@@' .. contenderId)
end
return 1`)
)

// redisContender runs the scripts, and waits for its own channel.
type redisContender struct {
	b        *testing.B
	rdb      *goredis.Client
	key, id  string
	released <-chan *goredis.Message // nil if nobody else wants the mutex
	sub      *goredis.PubSub
}

func directRedis(b *testing.B, s *shared) connector {
	rdb := goredis.NewClient(&goredis.Options{Addr: s.store.Addr, PoolSize: benchClients, MaxRetries: -1})
	b.Cleanup(func() { rdb.Close() })
	return func(b *testing.B, mutex, id string, hot bool) contender {
		b.Helper()
		c := &redisContender{b: b, rdb: rdb, key: "simba:{direct-" + mutex + "}", id: id}
		if hot {
			c.sub = rdb.Subscribe(b.Context(), c.key+":"+id)
			if _, err := c.sub.Receive(b.Context()); err != nil {
				b.Fatal(err)
			}
			c.released = c.sub.Channel()
		}
		return c
	}
}

func (c *redisContender) pair(stop <-chan struct{}) error {
	for {
		got, err := simbaAcquire.Run(c.b.Context(), c.rdb, []string{c.key}, c.id, benchLease).Text()
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		owner, left, _ := strings.Cut(got, "@@")
		if owner == c.id {
			break
		}
		ms, err := strconv.Atoi(left)
		if err != nil {
			return fmt.Errorf("acquire answers %q: %w", got, err)
		}
		expired := time.NewTimer(time.Duration(ms) * time.Millisecond)
		select {
		case <-c.released:
		case <-expired.C:
		case <-stop:
			expired.Stop()
			return nil
		}
		expired.Stop()
	}
	return simbaRelease.Run(c.b.Context(), c.rdb, []string{c.key}, c.id).Err()
}

func (c *redisContender) close() {
	if c.sub != nil {
		c.sub.Close()
	}
}
