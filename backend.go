package simba

import (
	"context"
	"errors"
	"time"
)

// Status is how an attempt to acquire or to renew came out.
type Status uint8

// The statuses, by the names that they have on the wire.
const (
	StatusAcquired Status = iota + 1 // a new tenure
	StatusRenewed                    // already the owner: lease extended, token unchanged
	StatusQueued                     // not now; the contender has a place in the queue
	StatusBusy                       // not now, and NoQueue asked not to queue
	StatusTimeout                    // the wait ended without the mutex; the contender left the queue
	StatusLost                       // GUARD by one that is not the owner
	StatusWaiting                    // blocked: a Ticket tells what comes of it; never on the wire
)

var statusNames = [...]string{"", "acquired", "renewed", "queued", "busy", "timeout", "lost", "waiting"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "unknown"
}

// Errors of a Backend. Whoever turns errors into text matches them with errors.Is.
var (
	// ErrStopped is returned by every method once the backend stops: what was
	// asked may or may not be done, and nothing may be told of it.
	ErrStopped = errors.New("the server is stopping")
	// ErrNotServed is returned by a backend for a command that it cannot serve.
	ErrNotServed = errors.New("not served by this engine")
	// ErrOutOfMemory is returned by Acquire for what would take memory while there is
	// none to spare (AcquireRequest.Full). Nothing has been done.
	ErrOutOfMemory = errors.New("out of memory")
)

// An UnavailableError is returned by an engine whose store could not be asked, or
// did not answer in time. What was asked may be done or may not: whoever asks again
// learns it.
type UnavailableError struct {
	Engine string // "redis", "mysql", "zookeeper"
	Err    error  // what the store's client said
}

func (e *UnavailableError) Error() string {
	return "engine " + e.Engine + " unavailable: " + e.Err.Error()
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// A MisconfiguredError is returned when an engine's store answered, and refuses what
// the engine needs for a reason that does not pass by itself: a missing table, a
// missing privilege, a value of another type at a key. A retry fails the same until an
// operator has changed the store. What was asked may have been done in part, as where a
// grant was written and its notice was refused: whoever asks again later learns it.
type MisconfiguredError struct {
	Engine string // "redis", "mysql", "zookeeper"
	Err    error  // names the fault
}

func (e *MisconfiguredError) Error() string {
	return "engine " + e.Engine + " misconfigured: " + e.Err.Error()
}

func (e *MisconfiguredError) Unwrap() error { return e.Err }

// AcquireRequest asks for a mutex, or to renew it by the one who owns it.
type AcquireRequest struct {
	Mutex      string
	Contender  string
	TTL        time.Duration
	Transition time.Duration
	NoQueue    bool // take no place in the queue when the mutex is not free

	// Session, when not 0, binds the lease to a connection: Release with the same
	// Session gives it up if no later Acquire has bound it otherwise.
	Session uint64

	// Full says that no memory is left for more: who neither owns the mutex nor waits for it
	// gets ErrOutOfMemory instead of a tenure or a place in the queue. Who owns it renews as
	// ever. Only a Keyspace is asked so: other engines hold no mutexes in memory.
	Full bool

	// Waiter, when not nil, blocks the contender until it owns the mutex: the
	// outcome is then StatusWaiting and a Ticket comes with it.
	Waiter Waiter
}

// Waiter is the one who waits in a blocked acquire.
type Waiter interface {
	// Wake tells that the mutex was granted, durably, or that the wait is over without
	// it, by an error too: Ticket.End will say. It may be called again, and after End, and
	// must not block.
	Wake()
}

// Ticket is a blocked acquire's place in the queue. Its End is called until the outcome
// is no longer StatusWaiting, its Abandon at most once and after that.
type Ticket interface {
	// End ends the wait for the reason given and returns what came of it. A mutex
	// that was granted in the meantime is the outcome whatever the reason, except
	// EndGone, which passes it on to the next waiter: nobody is there to be told.
	//
	// Who was woken may have been granted a lease that was over before it could be told. Then
	// it has a place again, and the outcome of EndWoken is StatusWaiting: Wake tells when
	// there is more to be said. It is that of no other reason.
	//
	// An engine whose store refuses to go on ends the wait by an error: it wakes the
	// waiter, and End(EndWoken) returns a *MisconfiguredError. The waiter has left the queue
	// then, or does as soon as the store allows it; a tenure that the store gives to its
	// place meanwhile is passed on. A grant that came before End wins over the error.
	End(why EndReason) (Outcome, error)
	// Abandon passes on a mutex that End said was acquired, since the waiter could
	// not be told, unless the contender has renewed it since.
	Abandon() (Seq, error)
}

// EndReason is why a wait ended.
type EndReason uint8

// The reasons.
const (
	EndWoken   EndReason = iota // Wake was called
	EndTimeout                  // the waiter's time ran out
	EndLeft                     // the waiter changed its mind, or was made to
	EndGone                     // its connection is gone: it keeps its place as a polling waiter
)

// Outcome is what came of an Acquire or a Guard.
type Outcome struct {
	Status Status
	Owner  string // the owner now, "" when free
	Token  uint64 // of the current tenure, 0 when free

	TTL        time.Duration // left until the TTL window ends, not below 0
	Transition time.Duration // left until the transition window ends, not below 0; see below
	Position   int           // in the queue, from 1; 0 = not queued

	// Of a mutex that is free but not to be had, Transition is how long it is kept:
	// for the waiter whose turn it is, or until the quiet time after an unclean stop
	// is over. So who sleeps for Transition never asks in vain.

	Seq Seq // what must be settled before this is told
}

// GuardRequest renews a lease.
type GuardRequest struct {
	Mutex      string
	Contender  string
	TTL        time.Duration
	Transition time.Duration
	Token      uint64 // if not 0, renew only that tenure
}

// ReleaseRequest gives a mutex up, or the place in its queue.
type ReleaseRequest struct {
	Mutex     string
	Contender string
	Token     uint64 // if not 0, release only that tenure
	Session   uint64 // if not 0, release only if that session holds the lease, and leave the queue alone
	Reason    string // for the history; may be empty
}

// Tenure is a lease as seen from outside, with all times on one scale, Unix
// milliseconds of the server's clock when the windows began. Now lies on that
// scale too, so differences are exact even if the clock was set since.
// The zero Tenure means that the mutex is free.
type Tenure struct {
	Owner        string
	Token        uint64
	AcquiredAt   int64
	TTLAt        int64
	TransitionAt int64
	Now          int64
	TTL          time.Duration // left, not below 0
	Transition   time.Duration // left, not below 0
	Waiters      int
}

// IsFree reports whether the mutex is free.
func (t Tenure) IsFree() bool { return t == Tenure{} }

// QueueEntry is a contender that waits.
type QueueEntry struct {
	Contender string
	Position  int           // from 1
	Waiting   time.Duration // since it took its place
	Blocked   bool          // a connection waits for it; else it polls
}

// ScanRequest asks for a part of the mutexes that are held or waited for.
type ScanRequest struct {
	Cursor    uint64                  // 0 starts
	Count     int                     // how many to look at, about; 0 = 10
	Match     func(mutex string) bool // nil = all
	Held      bool                    // only those that have an owner
	Contended bool                    // only those that someone waits for
}

// ScanPage is the answer. A mutex that is there from the first call to the last
// is returned at least once (the guarantee of Redis' SCAN).
type ScanPage struct {
	Cursor  uint64 // for the next call; 0 = done
	Mutexes []string
}

// HistoryRequest asks for the events of one mutex, the newest Count of them.
type HistoryRequest struct {
	Mutex string
	Count int // 0 = 10
	Since Seq // only those with a larger Seq
}

// Stats are an engine's figures, for INFO.
type Stats struct {
	Held          int64 // mutexes that have an owner now; below 0 = only a Scan can tell
	Mutexes       int64 // mutexes with an owner, a queue or a reservation; below 0 = unknown
	Blocked       int64 // waiters on open connections
	Polling       int64 // waiters that ask again; below 0 = unknown
	Acquired      int64 // tenures begun since start
	Renewed       int64
	Released      int64
	Expired       int64
	Broken        int64
	Handoffs      int64 // tenures that began by handoff to a blocked waiter
	Seq           Seq   // the last
	Token         uint64
	RecoveryDelay time.Duration // after an unclean stop: nobody new is granted for so long
}

// Backend keeps mutexes. All methods may be called concurrently. An argument that
// breaks a limit of this package is the caller's bug, not checked again.
//
// Results may rest on a change that is not durable yet: they say so by a Seq, and
// must not be told to anyone before the Committer says that it is durable.
type Backend interface {
	Committer
	// Acquire returns a Ticket only with StatusWaiting, and ErrOutOfMemory only if
	// the request is Full.
	Acquire(ctx context.Context, r AcquireRequest) (Outcome, Ticket, error)
	// Guard returns StatusRenewed or StatusLost.
	Guard(ctx context.Context, r GuardRequest) (Outcome, error)
	// Release reports whether the contender owned the mutex; if not, it has left
	// the queue.
	Release(ctx context.Context, r ReleaseRequest) (bool, Seq, error)
	// Owner returns the zero Tenure when the mutex is free.
	Owner(ctx context.Context, mutex string) (Tenure, Seq, error)
	// Queue returns the first count waiters in order.
	Queue(ctx context.Context, mutex string, count int) ([]QueueEntry, Seq, error)
	Scan(ctx context.Context, r ScanRequest) (ScanPage, Seq, error)
	// Check reports whether token is the current tenure's and its lease runs.
	Check(ctx context.Context, mutex string, token uint64) (bool, Seq, error)
	// Break ends the tenure, whoever owns it, and reports whether there was one.
	Break(ctx context.Context, mutex, reason string) (bool, Seq, error)
	// History returns events from old to new.
	History(ctx context.Context, r HistoryRequest) ([]Event, Seq, error)
	// Subscribed tells that a channel has one more subscriber here, before that
	// client is told so: a polling waiter whose own channel it is can be reached from
	// now on, and what a store announces there must be passed on. With pattern, the
	// name is a glob of channels. On an error the backend goes on trying by itself.
	// Nobody tells when subscribers leave: a backend asks its Notices now and then.
	Subscribed(ctx context.Context, channel string, pattern bool) (Seq, error)
	Stats() Stats
}

// Committer makes durable what results rest on. Its methods may be called concurrently. A
// connection settles once for all the commands of a pipeline, with the largest Seq of them; 0
// rests on nothing.
type Committer interface {
	// Commit returns when every change up to seq is durable, and sends off what
	// became tellable: notices, and wake-ups of waiters. After an error nothing that
	// rests on seq may be told.
	Commit(ctx context.Context, seq Seq) error
	// TryCommit is Commit if that does not have to wait. Else it begins what Commit waits
	// for, and returns false.
	TryCommit(seq Seq) (done bool, err error)
}

// Notices carries an engine's notices to subscribers. Its methods must not block
// and must not call the engine.
type Notices interface {
	// Publish returns how many subscribers of exactly that channel it was handed to.
	Publish(channel, payload string) int
	// Subscribed reports whether anyone subscribes to exactly that channel.
	Subscribed(channel string) bool
	// SubscribedPattern reports whether anyone subscribes to exactly that glob.
	SubscribedPattern(pattern string) bool
	// Any reports whether there is any subscription at all.
	Any() bool
}

// Change is what a step of an engine does to what is stored.
type Change struct {
	Seq   Seq // the change's own number
	Kind  ChangeKind
	Lease Lease // of ChangePut; of ChangeDelete only Mutex counts
	// Events are the change's lines for the history, each with its own Seq, none
	// larger than the change's.
	Events []Event
	// Token is the largest token that the change has given out: no later tenure may have it, or
	// a smaller one, also if this change stores no lease. 0 = none.
	Token uint64
	// Forced asks for an fsync before it is told in every mode that has a disk: it
	// ends a tenure against its owner's will, so if it were lost, the old owner and
	// a new one could both believe in theirs.
	Forced bool
}

// ChangeKind is what happens to a mutex' stored lease.
type ChangeKind uint8

// The kinds.
const (
	ChangeNone   ChangeKind = iota // only the history grows; a crash may forget it
	ChangePut                      // the lease is written
	ChangeDelete                   // the lease is removed
)
