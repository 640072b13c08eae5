package client

import (
	"testing"
	"time"
)

// The clock of the machine is set meanwhile: only the wall clock part of a time.Time changes.
func TestAnAlignedScheduleFollowsAClockThatIsSet(t *testing.T) {
	day := time.Date(2030, 1, 7, 0, 0, 0, 0, time.UTC)
	at := func(h, m int) time.Time { return day.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute) }
	b := &beats{cfg: &ScheduleConfig{Period: time.Hour, AlignToClock: true}, next: at(4, 0)}
	for _, step := range []struct{ now, next time.Time }{
		{at(3, 59).Add(59999 * time.Millisecond), at(5, 0)}, // the timer came early by this clock
		{at(5, 0), at(6, 0)},
		{at(5, 50), at(7, 0)}, // set back by ten minutes at 6:00, which was worked on
		{at(7, 0), at(8, 0)},
		{at(3, 0), at(4, 0)},   // by hours: they come again
		{at(9, 30), at(10, 0)}, // or do not come
	} {
		b.follow(step.now)
		if !b.next.Equal(step.next) {
			t.Errorf("after work at %v the next beat is at %v, not at %v", step.now, b.next, step.next)
		}
	}
	if b.look(at(8, 30)); !b.next.Equal(at(10, 0)) {
		t.Errorf("set back by less than two periods, the next beat is at %v", b.next)
	}
	if b.look(at(1, 30)); !b.next.Equal(at(2, 0)) {
		t.Errorf("set back by hours, the next beat is at %v", b.next)
	}
	b.next = at(10, 0)
	if b.isDue(at(9, 59)) || !b.isDue(at(10, 0)) || b.wait(at(9, 30)) != wallLook {
		t.Error("a beat is due at its time, and looked for every minute")
	}
}
