package outages

import (
	"sync"
	"testing"
	"time"
)

// pulse measures how long this process could not run. Other processes may use the processors, and
// the host may pause a virtual machine. Tests subtract this time from what they measure at the
// server.
type pulse struct {
	mu   sync.Mutex // guards the fields below
	lost time.Duration
	due  time.Time // when the next beat is due
}

// beat is the time between two readings of the clock. A delay shorter than beat does not count.
const beat = 10 * time.Millisecond

// startPulse starts a pulse that ends with the test.
func startPulse(t testing.TB) *pulse {
	p := &pulse{due: time.Now().Add(beat)}
	done := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		again := time.NewTicker(beat)
		defer again.Stop()
		for {
			select {
			case <-done:
				return
			case <-again.C:
			}
			p.mu.Lock()
			now := time.Now()
			p.lost += lateBy(now.Sub(p.due))
			p.due = now.Add(beat)
			p.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		close(done)
		beating.Wait()
	})
	return p
}

func lateBy(d time.Duration) time.Duration {
	if d < beat {
		return 0
	}
	return d
}

// soFar returns how long the process could not run since the start of the pulse.
func (p *pulse) soFar() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost + lateBy(time.Since(p.due))
}
