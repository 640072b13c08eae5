package client

import (
	"time"
)

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

	// Since is the start of the tenure, by the server's wall clock. It is zero if the server's
	// engine does not know it. Only Client.Owner sets Since.
	Since time.Time
	// Connection is the connection to which SIMBA.ACQUIRE with SESSION has bound the lease. It is
	// zero if there is none, or if it is a connection of another server. Only Client.Owner sets
	// Connection.
	Connection Connection
}

// Connection is a connection of the server, as CLIENT LIST shows it.
type Connection struct {
	ID   int64
	Addr string
	Name string // set by CLIENT SETNAME
}

// IsZero reports whether o is the zero Owner.
func (o Owner) IsZero() bool { return o.ID == "" }

// InTTL reports whether now lies in the TTL window.
func (o Owner) InTTL(now time.Time) bool { return !o.IsZero() && now.Before(o.TTLAt) }

// InTransition reports whether now lies in the transition window.
func (o Owner) InTransition(now time.Time) bool {
	return !o.IsZero() && !now.Before(o.TTLAt) && now.Before(o.TransitionAt)
}

// ownerOf returns the owner in a reply that arrived at the given time.
func ownerOf(r reply, at time.Time) Owner {
	if r.owner == "" {
		return Owner{}
	}
	return Owner{ID: r.owner, Token: r.token, TTLAt: at.Add(r.ttl), TransitionAt: at.Add(r.transition)}
}
