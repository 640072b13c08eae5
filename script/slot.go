package script

import (
	"context"
	"sync/atomic"
	"time"
)

// slot is a place for one script that runs.
type slot struct {
	// started is when the run in it began, by the runner's clock; 0 = there is none. Together
	// with the slot it names the run.
	started atomic.Int64
	killed  atomic.Int64 // the started of a run that is to end
	state   *state       // of its runs, one after the other; nil = to be made
}

// turn waits for a free slot, as long as some script that runs may still end soon.
func (r *Runner) turn(ctx context.Context) (*slot, error) {
	select {
	case s := <-r.free:
		return s, nil
	default:
	}
	for {
		wait := r.untilBusy()
		if wait <= 0 {
			return nil, ErrBusy
		}
		timer := time.NewTimer(wait)
		select {
		case s := <-r.free:
			timer.Stop()
			return s, nil
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

// untilBusy is how long it takes until every script has run longer than allowed.
func (r *Runner) untilBusy() time.Duration {
	now := r.clock()
	var youngest time.Duration = 1<<63 - 1
	for _, s := range r.slots {
		age := time.Duration(0) // one that is just coming or going
		if started := s.started.Load(); started != 0 {
			age = time.Duration(now - started)
		}
		youngest = min(youngest, age)
	}
	return r.busyAfter() - youngest
}

func (r *Runner) busyAfter() time.Duration {
	if r.config.BusyAfter != nil {
		if d := r.config.BusyAfter(); d > 0 {
			return d
		}
	}
	return defaultBusyAfter
}

// Kill ends the scripts that have run longer than Config.BusyAfter, or returns ErrNotBusy.
// They end soon after, with an error.
func (r *Runner) Kill() error {
	now, after := r.clock(), r.busyAfter()
	found := false
	for _, s := range r.slots {
		started := s.started.Load()
		if started != 0 && time.Duration(now-started) > after {
			s.killed.Store(started)
			found = true
		}
	}
	if !found {
		return ErrNotBusy
	}
	return nil
}
