package client

import (
	"time"
)

// Owner is who owns a mutex, as a client sees it. The zero Owner is nobody.
type Owner struct {
	ID    string // the contender's id
	Token uint64 // fencing token of the tenure

	// The ends of the two windows, on this process' monotonic clock. Of an own tenure they
	// are never later than the server's. Of another's they are as exact as the time
	// that the reply took.
	TTLAt        time.Time
	TransitionAt time.Time
}

// IsZero reports whether nobody owns the mutex.
func (o Owner) IsZero() bool { return o.ID == "" }

// InTTL reports whether now lies in the TTL window: the owner need not have renewed yet.
func (o Owner) InTTL(now time.Time) bool { return !o.IsZero() && now.Before(o.TTLAt) }

// InTransition reports whether now lies in the transition window: the owner is late to renew, owns
// the mutex still, and nobody else may take it.
func (o Owner) InTransition(now time.Time) bool {
	return !o.IsZero() && !now.Before(o.TTLAt) && now.Before(o.TransitionAt)
}

// State is a change of a mutex' owner.
type State struct {
	Mutex         string
	Before, After Owner // either may be zero
}

// ownerOf returns the owner in a reply that came at the time at.
func ownerOf(r reply, at time.Time) Owner {
	if r.owner == "" {
		return Owner{}
	}
	return Owner{ID: r.owner, Token: r.token, TTLAt: at.Add(r.ttl), TransitionAt: at.Add(r.transition)}
}
