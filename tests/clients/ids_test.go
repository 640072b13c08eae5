package clients

import (
	"strings"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestGoClientMakesIDsThatItsUserMayUse(t *testing.T) {
	long, longest := strings.Repeat("l", 80), strings.Repeat("x", 128)
	s := simbatest.Start(t, "--aclfile", writeUsers(t,
		"user ops on >word ~* +@all",
		"user mute on >word ~* +@simba +@connection +@pubsub", // may not send ACL WHOAMI
		"user "+long+" on >word ~* +@all",
		"user "+longest+" on >word ~* +@all",
	))
	tryLock := func(rdb *goredis.Client) (string, error) {
		c, err := client.New(rdb, client.Options{})
		simbatest.Must(t, err)
		defer c.Close()
		l, err := c.TryLock(t.Context(), "job")
		if err != nil {
			return "", err
		}
		return l.Owner().ID, l.Unlock(t.Context())
	}
	for _, user := range []string{"ops", "mute", long} {
		if id, err := tryLock(login(t, s, user, "word")); err != nil || !strings.HasPrefix(id, user+":") {
			t.Errorf("the user %s contends as %q, %v, want an id that begins with the name", user, id, err)
		}
	}
	if _, err := tryLock(login(t, s, longest, "word")); err == nil || !strings.Contains(err.Error(), "invalid contender") {
		t.Errorf("an id of the longest user name gives the error %v, want invalid contender", err)
	}
}

// A refused login says nothing about the name of the user.
func TestGoClientAsksForTheUserAgainAfterARefusedLogin(t *testing.T) {
	s := simbatest.Start(t, "--aclfile", writeUsers(t, "user ops on >word ~* +@all"))
	var password atomic.Value
	password.Store("wrong")
	rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr, ContextTimeoutEnabled: true, CredentialsProvider: func() (string, string) {
		return "ops", password.Load().(string)
	}})
	t.Cleanup(func() { rdb.Close() })
	c, err := client.New(rdb, client.Options{})
	simbatest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	if _, err := c.TryLock(t.Context(), "job"); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with a wrong password, TryLock returns %v, want WRONGPASS", err)
	}
	password.Store("word")
	l, err := c.TryLock(t.Context(), "job")
	simbatest.Must(t, err)
	if id := l.Owner().ID; !strings.HasPrefix(id, "ops:") {
		t.Errorf("the id is %s, want one that begins with ops:", id)
	}
}
