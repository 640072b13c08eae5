package clienttest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/simba-resp/simba-resp/client"
)

func TestOwnerHasTheStartOfTheTenureAndItsConnection(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		inWorld(t, func(t *testing.T, w *world) {
			g := w.client()
			rdb := redis.NewClient(&redis.Options{
				Dialer: g.dial, Addr: "127.0.0.1:7379", Protocol: protocol, ClientName: "worker-7", PoolSize: 1,
				ContextTimeoutEnabled: true, DisableIdentity: true,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			t.Cleanup(func() { must(t, rdb.Close()) })
			c, err := client.New(rdb, client.Options{})
			must(t, err)
			began := time.Now()
			must(t, rdb.Do(bg, "simba.acquire", "job", "a", 600_000, "session").Err())
			id, err := rdb.ClientID(bg).Result()
			must(t, err)
			time.Sleep(time.Minute)
			must(t, rdb.Do(bg, "simba.guard", "job", "a", 600_000).Err())
			o, err := c.Owner(bg, "job")
			must(t, err)
			if !o.Since.Equal(began.Truncate(time.Millisecond)) || o.Connection != (client.Connection{ID: id, Addr: "pipe", Name: "worker-7"}) {
				t.Errorf("RESP%d: the lease is held since %v by %+v, want since %v and id %d", protocol, o.Since, o.Connection, began, id)
			}
			must(t, rdb.Do(bg, "simba.acquire", "other", "a", 600_000).Err())
			o, err = c.Owner(bg, "other")
			must(t, err)
			if !o.Since.Equal(time.Now().Truncate(time.Millisecond)) || o.Connection != (client.Connection{}) {
				t.Errorf("RESP%d: without SESSION the lease is held since %v by %+v, want now and no connection", protocol, o.Since, o.Connection)
			}
		})
	}
}
