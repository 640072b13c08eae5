package commands

import (
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// Stats are the figures of the commands since the start or the last CONFIG RESETSTAT. INFO shows
// the same counters.
type Stats struct {
	Commands []CommandStats // of those that clients have sent, in the order of the table
	Errors   []Count        // error replies by code
	Denials  []Count        // by what the user lacks
	Acquires []Count        // requests of SIMBA.ACQUIRE by status, or "error"
	Guards   []Count        // those of SIMBA.GUARD
	// Waits are how long SIMBA.ACQUIRE ... WAIT took until the grant, which is durable after a
	// wait. They include requests that were granted at once, without the time until that grant
	// is durable.
	Waits simba.Durations

	// As of now.
	Sessions  int64  // connections that have bound a lease by SESSION
	Dataset   uint64 // memory of mutexes, queues and keys, in bytes; 0 = not in this process
	MaxMemory uint64 // limit of Dataset, 0 = none
}

// CommandStats are the figures of one command.
type CommandStats struct {
	Name      string // of a subcommand, with its container: "client|list"
	Calls     simba.Durations
	Succeeded uint64 // calls that replied with no error
	Failed    uint64 // calls that replied with an error
	Rejected  uint64 // refused before they ran
}

// Count is a number of requests or replies with one result.
type Count struct {
	Name string
	N    uint64
}

// Stats returns the figures. It reads them one after the other.
func (x *Commands) Stats() Stats {
	s := Stats{
		Acquires: x.acquires.read(acquireResults),
		Guards:   x.guards.read(guardResults),
		Waits:    x.waited.read(),
		Sessions: x.sessions.Load(),
		Dataset:  x.dataset(), MaxMemory: x.memory.bytes.Load(),
	}
	for e := range x.table.all() {
		c := CommandStats{
			Name: e.full, Calls: e.tally.read(),
			Succeeded: e.tally.succeeded.Load(), Failed: e.tally.failed.Load(), Rejected: e.tally.rejected.Load(),
		}
		if c.Rejected > 0 || c.Calls.Count() > 0 {
			s.Commands = append(s.Commands, c)
		}
	}
	for code, n := range x.errors.byCode() {
		s.Errors = append(s.Errors, Count{code, n})
	}
	for reason := range denialReasons {
		s.Denials = append(s.Denials, Count{denialWords[reason].name, x.aclLog.count(reason)})
	}
	return s
}

// results counts requests by the status of their reply. The zero Status stands for an error.
type results [simba.StatusWaiting]atomic.Uint64

var (
	acquireResults = []simba.Status{simba.StatusAcquired, simba.StatusRenewed, simba.StatusQueued, simba.StatusBusy, simba.StatusTimeout, 0}
	guardResults   = []simba.Status{simba.StatusRenewed, simba.StatusLost, 0}
)

func (r *results) add(status simba.Status) { r[status].Add(1) }

func (r *results) read(statuses []simba.Status) (counts []Count) {
	for _, status := range statuses {
		name := status.String()
		if status == 0 {
			name = "error"
		}
		counts = append(counts, Count{name, r[status].Load()})
	}
	return counts
}

func (r *results) reset() {
	for i := range r {
		r[i].Store(0)
	}
}

// countSession updates Commands.sessions after a command, which may have bound the first lease or
// released the last one.
func (c *client) countSession() {
	switch bound := len(c.session.byMutex) > 0; {
	case bound && !c.session.counted:
		c.x.sessions.Add(1)
		c.session.counted = true
	case !bound && c.session.counted:
		c.endSession()
	}
}

// endSession takes the connection out of Commands.sessions.
func (c *client) endSession() {
	if c.session.counted {
		c.x.sessions.Add(-1)
		c.session.counted = false
	}
}
