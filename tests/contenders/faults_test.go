package contenders

import (
	"fmt"
	"strconv"
	"testing"
	"time"

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
