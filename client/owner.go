package client

import (
	"time"
)

// Owner is the owner of a mutex, as a reply shows it. The zero Owner means that the mutex is
// free.
type Owner struct {
	ID    string // the contender's id
	Token uint64 // the fencing token of the tenure

	// TTLAt and TransitionAt are the ends of the two windows, on the monotonic clock of this
	// process. For a tenure of this process they are never later than at the server. For another
	// tenure they are late by the time that the reply took.
	TTLAt        time.Time
	TransitionAt time.Time

	// Only Client.Owner sets the next two.

	// Since is when the tenure began, by the server's wall clock. It is the zero time if the
	// server's engine does not know that.
	Since time.Time
	// Connection is the one that the lease is bound to by SESSION. It is the zero Connection if
	// there is none, or if it is one of another server.
	Connection Connection
}

// Connection is a connection of the server, as CLIENT LIST shows it.
type Connection struct {
	ID   int64
	Addr string
	Name string // by CLIENT SETNAME
}

// IsZero reports whether the mutex is free.
func (o Owner) IsZero() bool { return o.ID == "" }

// InTTL reports whether now lies in the TTL window.
func (o Owner) InTTL(now time.Time) bool { return !o.IsZero() && now.Before(o.TTLAt) }

// InTransition reports whether now lies in the transition window: the owner still owns the mutex,
// and has not renewed in time.
func (o Owner) InTransition(now time.Time) bool {
	return !o.IsZero() && !now.Before(o.TTLAt) && now.Before(o.TransitionAt)
}

// State is a change of the owner of a mutex.
type State struct {
	Mutex         string
	Before, After Owner // the zero Owner: the mutex is free, or the owner is not known
}

// ownerOf returns the owner in a reply that came at the time at.
func ownerOf(r reply, at time.Time) Owner {
	if r.owner == "" {
		return Owner{}
	}
	return Owner{ID: r.owner, Token: r.token, TTLAt: at.Add(r.ttl), TransitionAt: at.Add(r.transition)}
}
