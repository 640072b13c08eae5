package tests

import (
	"testing"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
)

// client connects go-redis to the server, with no options but the address.
func client(t testing.TB, s *server) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// acquire asks for a mutex and returns status and token.
func acquire(t testing.TB, c *goredis.Client, mutex, contender string, ttl int, options ...any) (string, int64) {
	t.Helper()
	r, err := toRecord(c.Do(t.Context(), append([]any{"SIMBA.ACQUIRE", mutex, contender, ttl}, options...)...).Result())
	if err != nil {
		t.Fatal(err)
	}
	return r["status"].(string), r["token"].(int64)
}

func TestGoRedisWorksWithNoSpecialOptions(t *testing.T) {
	c := client(t, start(t))
	sub := c.Subscribe(t.Context(), "simba:{job}")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}

	status, token := acquire(t, c, "job", "a", 60_000)
	if status != "acquired" || token == 0 {
		t.Errorf("got %s with token %d", status, token)
	}
	if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "acquired@@a" {
		t.Errorf("subscriber got %v, %v", m, err)
	}
	guarded, err := toRecord(c.Do(t.Context(), "SIMBA.GUARD", "job", "a", 60_000, "TOKEN", token).Result())
	if err != nil || guarded["status"] != "renewed" || guarded["token"] != token {
		t.Errorf("guard: %v, %v", guarded, err)
	}
	pipe := c.Pipeline()
	check := pipe.Do(t.Context(), "SIMBA.CHECK", "job", token)
	release := pipe.Do(t.Context(), "SIMBA.RELEASE", "job", "a")
	owner := pipe.Do(t.Context(), "SIMBA.OWNER", "job")
	_, err = pipe.Exec(t.Context())
	if check.Val() != int64(1) || release.Val() != int64(1) || owner.Err() != goredis.Nil || err != goredis.Nil {
		t.Errorf("pipeline: %v, %v, %v, %v", check, release, owner, err)
	}
}

func TestRedigoWorksWithNoSpecialOptions(t *testing.T) {
	s := start(t)
	c, err := redis.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := toRecord(c.Do("SIMBA.ACQUIRE", "job", "a", 60_000, "TRANSITION", 2000))
	if err != nil || got["status"] != "acquired" || got["owner"] != "a" || got["token"].(int64) == 0 {
		t.Errorf("got %v, %v", got, err)
	}
	released, err := redis.Int(c.Do("SIMBA.RELEASE", "job", "a"))
	if err != nil || released != 1 {
		t.Errorf("release: %d, %v", released, err)
	}
}
