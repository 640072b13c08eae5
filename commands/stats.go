package commands

import "github.com/simba-resp/simba-resp"

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

// Stats returns the figures. It reads one counter after the other, so related figures may differ by
// a few calls.
func (x *Commands) Stats() Stats {
	o := &x.observers.stats
	s := Stats{
		Acquires: o.acquires.read(acquireResults),
		Guards:   o.guards.read(guardResults),
		Waits:    o.waited.read(),
		Sessions: o.sessions.Load(),
		Dataset:  x.store.dataset(), MaxMemory: x.gate.memory.bytes.Load(),
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
	for code, n := range o.errors.byCode() {
		s.Errors = append(s.Errors, Count{code, n})
	}
	for reason := range denialReasons {
		s.Denials = append(s.Denials, Count{denialWords[reason].name, o.denials[reason].Load()})
	}
	return s
}
