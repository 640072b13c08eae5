package clienttest

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/resp"
)

func TestTheClientRequiresOnlyGoRedis(t *testing.T) {
	edit := exec.Command("go", "mod", "edit", "-json")
	edit.Dir = "../../client"
	out, err := edit.Output()
	must(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
	}
	must(t, json.Unmarshal(out, &mod))
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if len(direct) != 1 || direct[0] != "github.com/redis/go-redis/v9" || len(mod.Replace) != 0 {
		t.Errorf("client/go.mod requires %q and replaces %v, want only go-redis and no replacement", direct, mod.Replace)
	}
}

func TestTheClientTakesTheWindowsThatTheServerTakes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		for _, c := range []struct {
			ttl, transition time.Duration
			taken           bool
		}{
			{simba.MinTTL, 0, true},
			{simba.MinTTL - 1, 0, false},
			{simba.MaxTTL, simba.MaxTransition, true},
			{simba.MaxTTL + time.Millisecond, 0, false},
			{simba.MaxTTL, simba.MaxTransition + time.Millisecond, false},
		} {
			l, err := g.TryLock(bg, "job", client.WithTTL(c.ttl), client.WithTransition(c.transition))
			if (err == nil) != c.taken {
				t.Errorf("TryLock with TTL %v and transition %v returns %v, want success: %v", c.ttl, c.transition, err, c.taken)
			}
			if l != nil {
				_ = l.Unlock(bg)
			}
		}
	})
}

func TestTheClientSubscribesToTheServersChannels(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.contend("owner")
		synctest.Wait()
		g := w.client()
		w.allow(map[string]string{"bob": "~* +@all -simba.next"})
		polls := w.clientOf("bob", client.Options{})
		ctx, cancel := context.WithCancel(bg)
		go func() { _, _ = polls.Lock(ctx, "job", client.WithID("bob:waiter")) }()
		g.watch(t, "job")
		time.Sleep(5 * time.Second)
		want := []string{simba.ContenderChannel("job", "bob:waiter"), simba.MutexChannel("job"), simba.EventChannel("job")}
		if got := w.broker.Channels(resp.KindChannel, ""); !slices.Equal(sorted(got), sorted(want)) {
			t.Errorf("the client subscribes to %q, not %q", got, want)
		}
		cancel()
		must(t, polls.Close())
	})
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
