package contenders

import (
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
	lock := func(c *client.Client) (*client.Lock, error) {
		return c.Lock(t.Context(), "m", client.WithTTL(300*time.Millisecond), client.WithTransition(20*time.Second))
	}
	l, err := lock(newClient(t, s.Addr))
	simbatest.Must(t, err)
	next := make(chan uint64, 1) // has the token of the other contender
	other := newClient(t, s.Addr)
	go func() {
		l, err := lock(other)
		if err != nil {
			t.Error(err)
			next <- 0
			return
		}
		next <- l.Token()
	}()
	for range 3 {
		s.Restart()
		until := l.Owner().TransitionAt
		simbatest.Await(t, "the owner renews its lease", func() bool { return l.Owner().TransitionAt.After(until) })
	}
	if o, err := newClient(t, s.Addr).Owner(t.Context(), "m"); err != nil || o.ID != l.Owner().ID || o.Token != l.Token() {
		t.Errorf("after the restart, Owner returns %+v, %v, want %+v", o, err, l.Owner())
	}
	if l.Context().Err() != nil || len(next) != 0 {
		t.Error("the ownership has ended, or another one has begun")
	}
	simbatest.Must(t, l.Unlock(t.Context()))
	if token := within(t, "the other contender acquires the mutex", next); token <= l.Token() {
		t.Errorf("token %d of the next owner follows token %d, want a larger token", token, l.Token())
	}
}
