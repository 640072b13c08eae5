package resp

import (
	"runtime"
	"time"
)

const (
	// yieldAfter is the time after which a running connection lets others run.
	yieldAfter = 150 * time.Microsecond
	// A Read that takes longer than parkedAfter has let other connections run. A shorter one may have
	// found bytes in the socket, and returned without a switch of goroutines.
	parkedAfter = 20 * time.Microsecond
)

// turn is a connection's share of the processors.
type turn struct {
	slots        chan struct{} // Server.computing
	computes     bool          // the connection holds a slot
	runningSince time.Time     // when it last waited or let other connections run
}

// Yield lets other connections run if this one has run for yieldAfter, and returns how long it
// paused. A command that computes for long calls Yield now and then. Without a pause Yield costs
// little more than reading the clock. When a command has yielded once, it continues in one of
// GOMAXPROCS slots, first come, first served. So a flood of long commands leaves the scheduler's
// queue short. The caller may hold no lock that another connection needs.
func (t *turn) Yield() (paused time.Duration) {
	now := time.Now()
	if !t.letOthersRun() {
		return 0
	}
	if !t.computes {
		t.slots <- struct{}{}
		t.computes = true
		t.runningSince = time.Now()
	}
	return t.runningSince.Sub(now)
}

// letOthersRun lets other connections run if this one has run for yieldAfter. It reports whether it
// did.
func (t *turn) letOthersRun() bool {
	if time.Since(t.runningSince) < yieldAfter {
		return false
	}
	runtime.Gosched()
	t.runningSince = time.Now()
	return true
}

// FreeSlot gives back the slot that Yield has taken, if it has. The server calls it when a command
// ends, and before it commits or writes. A command that waits for anything else calls it first.
func (t *turn) FreeSlot() {
	if t.computes {
		t.computes = false
		<-t.slots
	}
}

// hasRead is called after a Read that began at a time. If the Read took long, a new turn begins.
func (t *turn) hasRead(began time.Time) {
	if now := time.Now(); now.Sub(began) > parkedAfter {
		t.runningSince = now
	}
}
