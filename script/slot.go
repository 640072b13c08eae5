package script

import (
	"context"
	"sync/atomic"
	"time"
)

// slot can run one script at a time.
type slot struct {
	// started is the start of the current run, by the runner's clock; 0 = no run. It identifies the
	// run in this slot.
	started atomic.Int64
	killed  atomic.Int64 // the value of started of the run that must end
	state   *state       // reused by later runs; nil = not created yet
}

// acquireSlot waits for a free slot. It returns ErrBusy when all running scripts are busy.
func (r *Runner) acquireSlot(ctx context.Context) (*slot, error) {
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
		select {
		case s := <-r.free:
			return s, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// untilBusy returns the time until all running scripts count as busy.
func (r *Runner) untilBusy() time.Duration {
	now := r.clock()
	var youngest time.Duration = 1<<63 - 1
	for _, s := range r.slots {
		age := time.Duration(0) // a run is about to begin or has just ended
		if started := s.started.Load(); started != 0 {
			age = time.Duration(now - started)
		}
		youngest = min(youngest, age)
	}
	return r.config.BusyAfter() - youngest
}

// Kill ends the scripts that have run for longer than Config.BusyAfter. Their Run returns an error
// soon after. Kill returns ErrNotBusy if there are none.
func (r *Runner) Kill() error {
	now, after := r.clock(), r.config.BusyAfter()
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
