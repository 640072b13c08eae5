package client

import (
	"testing"
	"time"
)

// When somebody sets the clock of the machine, the wall clock reading of time.Now changes, and the
// monotonic reading does not.
func TestAlignedScheduleFollowsTheWallClock(t *testing.T) {
	day := time.Date(2030, 1, 7, 0, 0, 0, 0, time.UTC)
	at := func(h, m int) time.Time { return day.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute) }
	n := &startTimes{&Schedule{Period: time.Hour, AlignToClock: true}, at(4, 0)}
	for _, step := range []struct{ now, next time.Time }{
		{at(3, 59).Add(59999 * time.Millisecond), at(5, 0)}, // the timer fired early
		{at(5, 0), at(6, 0)},
		{at(5, 50), at(7, 0)}, // the work of 6:00 is done, and the clock was set back to 5:50
		{at(7, 0), at(8, 0)},
		{at(3, 0), at(4, 0)},   // the clock was set back: work of these hours is repeated
		{at(9, 30), at(10, 0)}, // the clock was set forward: work of these hours is skipped
	} {
		n.advance(step.now)
		if !n.next.Equal(step.next) {
			t.Errorf("after work at %v the next work is at %v, want %v", step.now, n.next, step.next)
		}
	}
	if n.adjust(at(8, 30)); !n.next.Equal(at(10, 0)) {
		t.Errorf("the clock was set back by less than two periods: the next work is at %v, want 10:00", n.next)
	}
	if n.adjust(at(1, 30)); !n.next.Equal(at(2, 0)) {
		t.Errorf("the clock was set back by hours: the next work is at %v, want 2:00", n.next)
	}
	n.next = at(10, 0)
	if early, due, wait := n.isDue(at(9, 59)), n.isDue(at(10, 0)), n.wait(at(9, 30)); early || !due || wait != clockCheckEvery {
		t.Errorf("work of 10:00 is due at 9:59: %v, at 10:00: %v, want only at 10:00; the wait at 9:30 is %v, want %v", early, due, wait, clockCheckEvery)
	}
}
