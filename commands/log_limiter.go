package commands

import (
	"sync"
	"time"
)

// logLimiter allows a burst of log lines and then one a second. It counts the lines that it
// refuses. The next allowed line should report their number, which allow returns. If no line
// follows within a second, logLimiter calls late with the number.
type logLimiter struct {
	late func(missed int) // a timer or close calls it

	mu sync.Mutex // protects the rest
	// opened is the state of a token bucket. A line is allowed if opened is at least logPause ago.
	// Each logged line adds logPause to opened. opened is never more than logBurst*logPause ago,
	// which limits a burst.
	opened time.Time
	missed int
	closed bool
	timer  *time.Timer    // runs while missed is not 0
	timers sync.WaitGroup // timers whose call of overdue has not returned
}

const (
	logBurst = 20
	logPause = time.Second // between two lines
)

// allow reports whether a line may be logged. If so, missed is the number of lines that were
// refused since the last report.
func (v *logLimiter) allow() (open bool, missed int) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if full := now.Add(-logBurst * logPause); v.opened.Before(full) {
		v.opened = full
	}
	if opens := v.opened.Add(logPause); opens.After(now) && !v.closed {
		if v.missed++; v.missed == 1 {
			v.timers.Add(1)
			v.timer = time.AfterFunc(opens.Add(logPause).Sub(now), v.overdue)
		}
		return false, 0
	}
	return true, v.takeLocked()
}

// takeLocked counts a line as logged. It returns how many lines were refused since the last report,
// and stops the timer.
func (v *logLimiter) takeLocked() (missed int) {
	v.opened = v.opened.Add(logPause)
	missed, v.missed = v.missed, 0
	if v.timer != nil && v.timer.Stop() {
		v.timers.Done()
	}
	return missed
}

func (v *logLimiter) overdue() {
	defer v.timers.Done()
	v.reportMissed()
}

func (v *logLimiter) reportMissed() {
	v.mu.Lock()
	missed := 0
	if v.missed > 0 { // 0 = an allowed line has just reported them
		missed = v.takeLocked()
	}
	v.mu.Unlock()
	if missed > 0 {
		v.late(missed)
	}
}

// close reports the number of refused lines, and waits for running timers. From then on every line
// is allowed.
func (v *logLimiter) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.reportMissed()
	v.timers.Wait()
}
