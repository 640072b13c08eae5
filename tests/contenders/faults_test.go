package contenders

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

// The test freezes the owner's process until another contender is the owner. After that, no check
// in the first process may report that it is the owner, even before its callback runs.
func TestAFrozenProcessIsNoOwnerAfterItsLease(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	for nap := range 5 {
		t.Run(fmt.Sprint(nap), func(t *testing.T) {
			t.Parallel()
			sleep(t, s, fmt.Sprint("paused-", nap))
		})
	}
}

func sleep(t *testing.T, s *simbatest.Server, mutex string) {
	// Only the freeze ends this lease: it is longer than any pause of a busy machine.
	const ttl, transition = 300 * time.Millisecond, 5 * time.Second
	sleeper := launch(t, s.Addr, mutex, "sleeper", ttl, transition)
	token := sleeper.Wants(t, ` acquired (\d+)$`)[1]
	sleeper.Wants(t, ` owned `+token+`$`)
	other := launch(t, s.Addr, mutex, "other", ttl, transition)
	sleeper.Pause()
	other.Wants(t, ` owned \d+$`)
	woken := tenures.Clock()
	sleeper.Resume()
	sleeper.Wants(t, ` ended `+token+`$`)
	sleeper.Wants(t, ` released$`)

	var noted tenures.Log
	for _, c := range []*contender{sleeper, other} {
		c.Kill()
		c.tenures(t, &noted)
	}
	tenures.ServerSaw(t, changes(t, connect(t, s.Addr), mutex, 0), noted.NeverTwo(t))
	if !noneOwns(t, sleeper, woken, token) {
		t.Errorf("%s has made no check after its freeze", sleeper.id)
	}
}

// noneOwns fails the test if a check after the given time reports that the tenure runs. It returns
// whether there was such a check.
func noneOwns(t *testing.T, c *contender, after time.Duration, tenure string) (checked bool) {
	t.Helper()
	token, err := strconv.ParseUint(tenure, 10, 64)
	simbatest.Must(t, err)
	for _, l := range c.lines(t) {
		switch {
		case l.word == "acquired" && l.token > token:
			return checked
		case l.at < after: // a check before the freeze; the process wrote its line afterwards
			checked = checked || l.word == "ended"
		case l.word == "owned" || l.word == "owner":
			t.Errorf("%v after the end of its freeze, %s writes %q", l.at-after, c.id, l.word)
		case l.word == "ended":
			checked = true
		}
	}
	return checked
}

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
