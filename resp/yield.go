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

// Yield lets other connections run if this one has run for yieldAfter, and returns how long it
// paused. A command that computes for long calls Yield now and then. Without a pause Yield costs
// little more than reading the clock. When a command has yielded once, it continues in one of
// GOMAXPROCS slots, first come, first served. So a flood of long commands leaves the scheduler's
// queue short. The caller may hold no lock that another connection needs.
func (c *Conn) Yield() (paused time.Duration) {
	now := c.age()
	if !c.letOthersRun() {
		return 0
	}
	if !c.computes {
		c.server.computing <- struct{}{}
		c.computes = true
		c.runningSince = c.age()
	}
	return c.runningSince - now
}

// letOthersRun lets other connections run if this one has run for yieldAfter. It reports whether it
// did.
func (c *Conn) letOthersRun() bool {
	if c.age()-c.runningSince < yieldAfter {
		return false
	}
	runtime.Gosched()
	c.runningSince = c.age()
	return true
}

// FreeSlot gives back the slot that Yield has taken, if it has. The server calls it when a command
// ends, and before it commits or writes. A command that waits for anything else calls it first.
func (c *Conn) FreeSlot() {
	if c.computes {
		c.computes = false
		<-c.server.computing
	}
}
