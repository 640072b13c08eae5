package commands

import (
	"sync"
	"time"
)

// logLimiter allows a burst of log lines and then one a second. It counts the lines that it
// refuses. The next allowed line reports their number. If no line follows within a second, late
// reports it.
type logLimiter struct {
	late func(missed int) // set once; a timer or close calls it

	mu     sync.Mutex // protects the rest
	opened time.Time  // each line adds logPause; a line is allowed if this is logPause ago
	missed int
	closed bool
	timer  *time.Timer    // runs while missed is not 0
	timers sync.WaitGroup // timers whose overdue has not returned
}

const (
	logBurst = 20
	logPause = time.Second // between two lines
)

// allow reports whether a line may be logged. If so, missed lines were refused since the last one.
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

// takeLocked counts a line as logged, and returns how many were refused before it.
func (v *logLimiter) takeLocked() (missed int) {
	v.opened = v.opened.Add(logPause)
	missed, v.missed = v.missed, 0
	if v.timer != nil && v.timer.Stop() {
		v.timers.Done()
	}
	return missed
}

// overdue is the function of the timer.
func (v *logLimiter) overdue() {
	defer v.timers.Done()
	v.reportMissed()
}

func (v *logLimiter) reportMissed() {
	v.mu.Lock()
	missed := 0
	if v.missed > 0 { // otherwise an allowed line has just reported them
		missed = v.takeLocked()
	}
	v.mu.Unlock()
	if missed > 0 {
		v.late(missed)
	}
}

// close reports the number of refused lines. From then on every line is allowed.
func (v *logLimiter) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.reportMissed()
	v.timers.Wait()
}
