package persist

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// newOptions returns options of a store whose numbers begin at the wall clock, as in a server.
func newOptions(t *testing.T, fsys vfs.FS, mode Mode, wall time.Time) Options {
	o := testOptions(t, fsys, mode)
	o.Wall = func() time.Time { return wall }
	return o
}

// A store that is lost with its disk can have given out no larger number.
func TestANewStoreBeginsItsNumbersAtTheWallClock(t *testing.T) {
	wall := firstFloor.Add(time.Microsecond)
	for _, mode := range []Mode{Always, Async} {
		fsys := vfs.NewCrashableMem()
		_, r := openClosed(t, newOptions(t, fsys, mode, wall))
		if floor := uint64(wall.UnixMicro()); r.Token != floor || r.Seq != simba.Seq(floor) {
			t.Errorf("%v: Token %d, Seq %d, want both %d", mode, r.Token, r.Seq, floor)
		}
		_, again := openClosed(t, newOptions(t, crash(fsys), mode, wall.Add(-time.Hour)))
		if again.Token < r.Token || again.Seq < r.Seq {
			t.Errorf("%v: after a crash Token %d, Seq %d, want at least %d", mode, again.Token, again.Seq, r.Token)
		}
	}
}

func TestAClockBefore2026RefusesANewStoreOnly(t *testing.T) {
	fsys := vfs.NewMem()
	early := newOptions(t, fsys, Always, firstFloor.Add(-time.Second))
	for range 2 { // a start that was refused has left files
		s, _, err := Open(early)
		if err == nil {
			mustClose(t, s)
			t.Fatal("a new store opens")
		}
		if !errors.Is(err, ErrClock) || !strings.Contains(err.Error(), "2025-12-31T23:59:59Z") {
			t.Fatalf("Open returns %q, want ErrClock with the time", err)
		}
	}
	s, _ := mustOpen(t, newOptions(t, fsys, Always, firstFloor))
	mustClose(t, s)
	openClosed(t, early)
}

func TestTheRecoveryDelayOfANewStoreIsThatOfItsFirstRun(t *testing.T) {
	at := new(clock)
	fsys := vfs.NewCrashableMem()
	open := func(fsys vfs.FS, delay time.Duration) (*Store, time.Duration) {
		o := testOptions(t, fsys, Always)
		o.Boot.Now, o.RecoveryDelay = at.now, delay
		s, r := mustOpen(t, o)
		return s, r.Delay
	}
	s, delay := open(fsys, time.Minute)
	if delay != time.Minute {
		t.Errorf("Delay = %v, want a minute", delay)
	}
	at.advance(20 * time.Second)
	crashed, delay := open(crash(fsys), 0)
	if delay != time.Minute {
		t.Errorf("after a crash Delay = %v, want a minute again", delay)
	}
	mustClose(t, crashed)
	mustClose(t, s)
	s, delay = open(fsys, time.Hour)
	if delay != 40*time.Second {
		t.Errorf("after a clean stop Delay = %v, want the remaining 40s", delay)
	}
	at.advance(40 * time.Second)
	mustClose(t, s)
	s, delay = open(fsys, time.Hour)
	if delay != 0 {
		t.Errorf("a store that exists has the delay %v, want none", delay)
	}
	mustClose(t, s)
}

func TestOpenRefusesARecoveryDelayThatIsOutOfRange(t *testing.T) {
	for _, delay := range []time.Duration{-1, MaxRecoveryDelay + 1} {
		o := testOptions(t, vfs.NewMem(), Always)
		o.RecoveryDelay = delay
		if s, _, err := Open(o); err == nil {
			mustClose(t, s)
			t.Errorf("Open accepts the recovery delay %v", delay)
		}
	}
}
