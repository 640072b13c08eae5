package commands

import (
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// Stats are the figures of the commands since the start. INFO shows the same counters.
type Stats struct {
	Commands []CommandStats // commands that clients have sent, in the order of the table
	Errors   []Count        // error replies by code
	Denials  []Count        // denied requests by the permission that the user lacks
	Acquires []Count        // requests of SIMBA.ACQUIRE by status, "error" for an error
	Guards   []Count        // requests of SIMBA.GUARD by status, "error" for an error
	// Waits are the times of SIMBA.ACQUIRE ... WAIT until the grant. If a request has waited, its
	// time includes the commit of the grant, otherwise not.
	Waits simba.Durations

	// Present values.
	Sessions  int64  // connections that have bound a lease by SESSION
	Dataset   uint64 // memory of mutexes, queues and keys, in bytes; 0 = they are in a store
	MaxMemory uint64 // limit of Dataset, 0 = none
}

// CommandStats are the figures of one command.
type CommandStats struct {
	Name      string // in lower case; a subcommand with its container: "client|list"
	Calls     simba.Durations
	Succeeded uint64 // calls that replied with no error
	Failed    uint64 // calls that replied with an error
	Rejected  uint64 // calls refused before they ran
}

// Count is a number of requests or replies with one result.
type Count struct {
	Name string
	N    uint64
}

// Stats returns the figures. It reads one counter after the other, so related figures may differ by
// a few calls.
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
		s.Denials = append(s.Denials, Count{denialWords[reason].name, x.denials[reason].Load()})
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

// countSession updates Commands.sessions after a command. The command may have bound the
// connection's first lease, or released its last one.
func (c *client) countSession() {
	switch bound := len(c.session.byMutex) > 0; {
	case bound && !c.session.counted:
		c.x.sessions.Add(1)
		c.session.counted = true
	case !bound && c.session.counted:
		c.endSession()
	}
}

func (c *client) endSession() {
	if c.session.counted {
		c.x.sessions.Add(-1)
		c.session.counted = false
	}
}
