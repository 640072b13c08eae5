package contenders

import (
	"context"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The owner renews often, and its lease outlasts a restart of the server.
func TestATenureSurvivesACrashOfTheServer(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	acquired := make(chan context.Context, 10)
	contend := func() *client.Contender {
		k, err := newClient(t, s.Addr).NewContender(client.ContenderConfig{
			Mutex: "m", TTL: 300 * time.Millisecond, Transition: 20 * time.Second,
			OnAcquired: func(ctx context.Context, _ client.State) { acquired <- ctx },
		})
		if err == nil {
			err = k.Start()
		}
		simbatest.Must(t, err)
		t.Cleanup(func() { k.Stop(context.Background()) })
		return k
	}
	k := contend()
	ownership := within(t, "OnAcquired is called", acquired)
	other := contend()
	for range 3 {
		s.Restart()
		until := k.Owner().TransitionAt
		simbatest.Await(t, "the owner renews its lease", func() bool { return k.Owner().TransitionAt.After(until) })

	}
	if o, err := newClient(t, s.Addr).Owner(t.Context(), "m"); err != nil || o.ID != k.ID() || o.Token != client.Token(ownership) {
		t.Errorf("after the restart, Owner returns %+v, %v, want %s with token %d", o, err, k.ID(), client.Token(ownership))
	}
	if ownership.Err() != nil || !k.IsOwner() || other.IsOwner() || len(acquired) != 0 {
		t.Error("the ownership has ended, or another one has begun")
	}
	simbatest.Must(t, k.Stop(t.Context()))
	if next := within(t, "OnAcquired of the other contender is called", acquired); client.Token(next) <= client.Token(ownership) {
		t.Errorf("token %d of the next owner follows token %d, want a larger token", client.Token(next), client.Token(ownership))
	}
}
