package tests

import (
	"context"
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

// record is a reply of SIMBA.ACQUIRE and the like, by field.
type record map[any]any

// do runs a command whose reply is a record.
func do(ctx context.Context, c *goredis.Client, args ...any) (record, error) {
	reply, err := c.Do(ctx, args...).Result()
	if err != nil {
		return nil, err
	}
	return reply.(map[any]any), nil
}

// acquire asks for a mutex and returns status and token.
func acquire(t testing.TB, c *goredis.Client, mutex, contender string, ttl int, options ...any) (string, int64) {
	t.Helper()
	r, err := do(t.Context(), c, append([]any{"SIMBA.ACQUIRE", mutex, contender, ttl}, options...)...)
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
	guarded, err := do(t.Context(), c, "SIMBA.GUARD", "job", "a", 60_000, "TOKEN", token)
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
	got, err := redis.Values(c.Do("SIMBA.ACQUIRE", "job", "a", 60_000, "TRANSITION", 2000))
	if err != nil {
		t.Fatal(err)
	}
	var status, owner string
	var token int64
	for i := 0; i+1 < len(got); i += 2 {
		switch string(got[i].([]byte)) {
		case "status":
			status = string(got[i+1].([]byte))
		case "owner":
			owner = string(got[i+1].([]byte))
		case "token":
			token = got[i+1].(int64)
		}
	}
	if status != "acquired" || owner != "a" || token == 0 {
		t.Errorf("got %s, %s, %d", status, owner, token)
	}
	released, err := redis.Int(c.Do("SIMBA.RELEASE", "job", "a"))
	if err != nil || released != 1 {
		t.Errorf("release: %d, %v", released, err)
	}
}
