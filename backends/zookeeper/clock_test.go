package zookeeper

import (
	"testing"
	"time"
)

func TestLateAnswerDoesNotMoveTheLeadersClock(t *testing.T) {
	const rough = 20 * time.Millisecond
	// The leader's clock in the late answer, as the time since the start of the exchange.
	for name, shown := range map[string]time.Duration{
		"read before the ensemble stopped": time.Millisecond,
		"read when it went on":             10 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			var c storeClock
			start := time.Now()
			c.observe(start.UnixMilli(), start.Add(-rough/2), start.Add(rough/2))
			c.observe(start.Add(shown).UnixMilli(), start, start.Add(10*time.Second))
			granted := start.Add(-time.Second)
			if off := c.latest(granted.UnixMilli()).Sub(granted); off < 0 || off > 2*rough {
				t.Errorf("latest returns a time %v after the grant of a lease; want 0 to %v", off, 2*rough)
			}
			if off := c.at(granted) - granted.UnixMilli(); off < -rough.Milliseconds() || off > rough.Milliseconds() {
				t.Errorf("at returned a clock that differs from the leader's by %d ms; want at most %v", off, rough)
			}
		})
	}
}

func TestEndOfAForeignLeaseIsNotReportedEarly(t *testing.T) {
	var c storeClock
	start := time.Now()
	// The leader reads its clock at the very end of the exchange.
	c.observe(start.Add(time.Hour).UnixMilli(), start.Add(-400*time.Millisecond), start)
	if c.latest(start.Add(time.Hour).UnixMilli()).Before(start.Truncate(time.Millisecond)) {
		t.Error("latest returns a time before the grant of a lease")
	}
}

func TestNewLeadersClockIsAdoptedAtOnce(t *testing.T) {
	var c storeClock
	now := time.Now()
	c.observe(now.UnixMilli(), now, now)
	c.observe(now.UnixMilli()-5000, now, now.Add(10*time.Millisecond))
	if off := c.at(now) - now.UnixMilli(); off < -5010 || off > -4980 {
		t.Errorf("at returned a clock that is %d ms ahead of the local clock; want about -5000, as the new leader's", off)
	}
}
