package commands

import (
	"sync"
	"time"
)

// logLimiter lets a burst pass and then one a second. What it keeps back it counts: the next that passes is told how
// many, or late is, if for a second none comes that could pass.
type logLimiter struct {
	late func(missed int) // set once; called by a timer, or by close

	mu     sync.Mutex // protects the rest
	opened time.Time  // when the first of the present burst would have passed, one a second
	missed int
	closed bool
	timer  *time.Timer    // runs while something was missed
	timers sync.WaitGroup // those that will call overdue, or do
}

const (
	logBurst = 20
	logPause = time.Second // between two that pass
)

// pass reports whether one more may pass, and how many did not since the last that did.
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

// takeLocked has one pass, and returns how many did not before it.
func (v *logLimiter) takeLocked() (missed int) {
	v.opened = v.opened.Add(logPause)
	missed, v.missed = v.missed, 0
	if v.timer != nil && v.timer.Stop() {
		v.timers.Done()
	}
	return missed
}

// overdue is called by the timer.
func (v *logLimiter) overdue() {
	defer v.timers.Done()
	v.reportMissed()
}

func (v *logLimiter) reportMissed() {
	v.mu.Lock()
	missed := 0
	if v.missed > 0 { // else one came at the same moment and was told
		missed = v.takeLocked()
	}
	v.mu.Unlock()
	if missed > 0 {
		v.late(missed)
	}
}

// close tells what was missed and has everything pass from now on.
func (v *logLimiter) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.reportMissed()
	v.timers.Wait()
}
