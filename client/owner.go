package client

import "time"

// Owner is the owner of a mutex, as the server has reported it. The zero Owner means that the mutex
// is free, or that the owner is not known.
type Owner struct {
	ID    string // the contender's id
	Token uint64 // the fencing token of the tenure

	// TTLAt and TransitionAt are the ends of the two windows, on the monotonic clock of this
	// process. For a tenure of this process they are never later than the ends at the server. For
	// another tenure they may be later, by the time that the server's reply took to arrive.
	TTLAt        time.Time
	TransitionAt time.Time
}

// IsZero reports whether o is the zero Owner.
func (o Owner) IsZero() bool { return o.ID == "" }

// ownerOf returns the owner in a reply that arrived at the given time.
func ownerOf(r reply, at time.Time) Owner {
	if r.owner == "" {
		return Owner{}
	}
	return Owner{ID: r.owner, Token: r.token, TTLAt: at.Add(r.ttl), TransitionAt: at.Add(r.transition)}
}
