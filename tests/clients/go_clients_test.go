package clients

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestGoRedisWorksWithNoSpecialOptions(t *testing.T) {
	c := simbatest.GoRedis(t, simbatest.Start(t))
	sub := c.Subscribe(t.Context(), "simba:{job}")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}

	status, token := simbatest.Acquire(t, c, "job", "a", 60_000)
	if status != "acquired" || token == 0 {
		t.Errorf("ACQUIRE returns %s with token %d, want acquired with a token", status, token)
	}
	if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "acquired@@a" {
		t.Errorf("the subscriber receives %v, %v, want acquired@@a", m, err)
	}
	guarded, err := simbatest.ToRecord(c.Do(t.Context(), "SIMBA.GUARD", "job", "a", 60_000, "TOKEN", token).Result())
	if err != nil || guarded["status"] != "renewed" || guarded["token"] != token {
		t.Errorf("GUARD returns %v, %v, want renewed with the same token", guarded, err)
	}
	pipe := c.Pipeline()
	check := pipe.Do(t.Context(), "SIMBA.CHECK", "job", token)
	release := pipe.Do(t.Context(), "SIMBA.RELEASE", "job", "a")
	owner := pipe.Do(t.Context(), "SIMBA.OWNER", "job")
	_, err = pipe.Exec(t.Context())
	if check.Val() != int64(1) || release.Val() != int64(1) || owner.Err() != goredis.Nil || err != goredis.Nil {
		t.Errorf("the pipeline of CHECK, RELEASE and OWNER returns %v, %v, %v, %v, want 1, 1, and null twice", check, release, owner, err)
	}
}
