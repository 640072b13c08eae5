package simba

import (
	"context"
	"errors"
	"time"
)

// Status is the result of an attempt to acquire or to renew.
type Status uint8

// The statuses. String returns their names on the wire.
const (
	StatusAcquired Status = iota + 1 // a new tenure
	StatusRenewed                    // already the owner: lease extended, token unchanged
	StatusQueued                     // not free; the contender has a queue entry
	StatusBusy                       // not free, and the request has NoQueue
	StatusTimeout                    // the wait ended without the mutex, and the contender left
	StatusLost                       // GUARD by a contender that is not the owner
	StatusWaiting                    // blocked: Ticket.End returns the outcome; never on the wire
)

var statusNames = [...]string{
	"", "acquired", "renewed", "queued", "busy", "timeout", "lost", "waiting",
}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "unknown"
}

// Errors of a Backend, to be matched with errors.Is.
var (
	// ErrStopped is returned by every method when the backend stops. The request may have been
	// done. The caller must not send a reply.
	ErrStopped = errors.New("the server is stopping")
	// ErrNotServed is returned when a backend cannot serve a command.
	ErrNotServed = errors.New("not served by this engine")
	// ErrOutOfMemory is returned by Acquire when a request with Full set needs memory, or when the
	// queue is at its limit (Keyspace.LimitQueues). Nothing has been done.
	ErrOutOfMemory = errors.New("out of memory")
)

// An UnavailableError is returned when an engine's store cannot be reached or does not answer in
// time. The request may have been done. A retry then shows the state that the request left.
type UnavailableError struct {
	Engine string // "redis", "mysql", "postgres", "zookeeper"
	Err    error  // of the store's client
	// Busy says that only this request failed. The store may still answer others.
	Busy bool
}

func (e *UnavailableError) Error() string {
	return "engine " + e.Engine + " unavailable: " + e.Err.Error()
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// A MisconfiguredError is returned when an engine's store refuses a request until an operator
// changes the store. Examples are a missing table, a missing privilege and a key of another type.
// The request may have been done in part: for example, the store wrote the grant, but refused the
// notice of it. A retry after the repair shows the state that the request left.
type MisconfiguredError struct {
	Engine string // "redis", "mysql", "postgres", "zookeeper"
	Err    error  // names the fault
}

func (e *MisconfiguredError) Error() string {
	return "engine " + e.Engine + " misconfigured: " + e.Err.Error()
}

func (e *MisconfiguredError) Unwrap() error { return e.Err }

// AcquireRequest is a request to acquire a mutex, or to renew its lease if the contender owns it.
type AcquireRequest struct {
	Mutex      string
	Contender  string
	TTL        time.Duration // length of the TTL window
	Transition time.Duration // length of the transition window
	NoQueue    bool          // if the mutex is not free, do not queue

	// Session, if not 0, binds the lease to a connection. Release with the same Session then ends
	// the tenure, unless a later Acquire has bound the lease to another session.
	Session uint64

	// Full says that the memory limit is reached. Then a contender that neither owns the mutex nor
	// waits for it gets ErrOutOfMemory. The owner can still renew. Only requests to a Keyspace have
	// Full set, since other engines keep no mutexes in memory.
	Full bool

	// Waiter, if not nil, blocks the contender until it owns the mutex. If the mutex is not free,
	// the outcome has StatusWaiting, and Acquire returns a Ticket.
	Waiter Waiter
}

// Waiter is the caller of a blocked Acquire.
type Waiter interface {
	// Wake reports that Ticket.End has a new outcome: the mutex was granted durably, or the wait
	// ended without the mutex. An engine may call Wake more than once, also after End. Wake must
	// not block.
	Wake()
}

// Ticket is a blocked Acquire. The caller calls End until the outcome is not StatusWaiting, and
// then Abandon at most once.
type Ticket interface {
	// End ends the wait for a reason and returns the outcome. If the mutex was granted meanwhile,
	// the outcome is StatusAcquired. For EndGone, End hands the mutex off to the next waiter
	// instead.
	//
	// A waiter never receives an expired lease. If the granted lease expired before the call of
	// End, the engine queues the waiter again. Then End(EndWoken) returns StatusWaiting, and the
	// engine calls Wake later. End with any other reason never returns StatusWaiting.
	//
	// If an engine's store refuses the wait, the engine calls Wake, and End(EndWoken) returns a
	// *MisconfiguredError. The waiter leaves the queue as soon as the store allows it. If the store
	// grants it a tenure meanwhile, the engine hands the mutex off. If a grant arrived before End,
	// End returns the grant instead of the error.
	End(why EndReason) (Outcome, error)
	// Abandon hands off a mutex that End returned as acquired. The caller uses it if the client
	// could not receive the reply. Abandon does nothing if the contender has renewed the lease
	// since.
	Abandon() (Seq, error)
}

// EndReason is why a wait ended.
type EndReason uint8

// The reasons.
const (
	EndWoken   EndReason = iota // Wake was called
	EndTimeout                  // the wait timed out
	EndLeft                     // the client or an administrator ended the wait
	EndGone                     // the connection has closed: the waiter stays queued and polls
)

// Outcome is the result of an Acquire or a Guard.
type Outcome struct {
	Status Status
	Owner  string // "" = the mutex is free
	Token  uint64 // of the current tenure, 0 = the mutex is free

	TTL time.Duration // until the TTL window ends, at least 0
	// Transition is the time until the transition window ends, at least 0. A free mutex may be
	// reserved for the next waiter, or be in the recovery delay. Then Transition is the time until
	// the reservation or the delay ends.
	Transition time.Duration
	Position   int // in the queue, from 1; 0 = not queued

	Seq Seq // must be durable before the outcome is sent

	// Settled says that the caller need not call Commit: the outcome shows no more than a grant to this
	// contender, which is committed, and the request has caused no notice.
	Settled bool
}

// GuardRequest is a request to renew a lease.
type GuardRequest struct {
	Mutex      string
	Contender  string
	TTL        time.Duration
	Transition time.Duration
	Token      uint64 // if not 0, renew only that tenure
}

// ReleaseRequest is a request to end a tenure of the contender, and to remove it from the queue.
type ReleaseRequest struct {
	Mutex     string
	Contender string
	Token     uint64 // if not 0, release only that tenure
	Session   uint64 // if not 0, release only a lease bound to it, and leave the queue alone
	Reason    string // for the history; may be empty
}

// Tenure describes an owner and its lease. AcquiredAt, TTLAt, TransitionAt and Now are in Unix
// milliseconds on one clock, which may differ from the caller's clock. So compare them only with
// each other. In the engine embedded their differences are exact, even if someone sets the clock
// during the lease. The zero Tenure means that the mutex is free.
type Tenure struct {
	Owner        string
	Token        uint64
	AcquiredAt   int64
	TTLAt        int64
	TransitionAt int64
	Now          int64
	TTL          time.Duration // until the TTL window ends, at least 0
	Transition   time.Duration // until the transition window ends, at least 0
	Waiters      int

	// StartedAt is the wall time of the grant, in Unix milliseconds; 0 = the engine does not know
	// it. If the clock has been set since the grant, StartedAt may not fit the other times.
	StartedAt int64
	// Session is the connection of this server that the lease is bound to; 0 = none.
	Session uint64
}

// IsFree reports whether the mutex is free.
func (t Tenure) IsFree() bool { return t == Tenure{} }

// QueueEntry is a waiter in the queue of a mutex.
type QueueEntry struct {
	Contender string
	Position  int           // from 1
	Waiting   time.Duration // since it queued
	Blocked   bool          // a blocked waiter; else a polling waiter
}

// ScanRequest asks for some of the mutexes that have an owner or waiters.
type ScanRequest struct {
	Cursor    uint64                  // 0 starts
	Count     int                     // about how many mutexes to examine; 0 = 10
	Match     func(mutex string) bool // nil = all
	Held      bool                    // only those that have an owner
	Contended bool                    // only those that have waiters
}

// ScanPage is the result of a Scan. If a mutex has an owner or waiters from the first call of a
// scan to the last, the scan returns it at least once. Redis' SCAN promises the same.
type ScanPage struct {
	Cursor  uint64 // for the next call; 0 = done
	Mutexes []string
}

// HistoryRequest asks for the newest events of a mutex.
type HistoryRequest struct {
	Mutex string
	Count int // 0 = 10
	Since Seq // only those with a larger Seq
}

// Stats are an engine's figures for INFO.
type Stats struct {
	Held    int64 // mutexes with an owner; below 0 = unknown
	Mutexes int64 // mutexes in memory, some of which may be free; below 0 = unknown
	Blocked int64 // blocked waiters
	Polling int64 // polling waiters; below 0 = unknown

	// Since the start of the server.
	Acquired int64 // tenures that began
	Renewed  int64 // renewals
	Released int64 // tenures that ended by a release
	Expired  int64 // tenures that ended by the expiry of the lease
	Broken   int64 // tenures that an administrator ended
	Handoffs int64 // tenures that began by a handoff to a blocked waiter
	// TenureLengths are the lengths of ended tenures by the wall clock. Tenures whose start the
	// engine does not know are left out.
	TenureLengths Durations

	Seq           Seq           // the largest so far
	Token         uint64        // the largest so far
	RecoveryDelay time.Duration // what remains of the recovery delay
}

// Backend keeps mutexes. It is safe for concurrent use. Before a call, the caller must check names,
// durations and counts against the limits of this package, such as MaxMutexLen and MaxTTL.
//
// A result may depend on a change that is not durable yet. Then the result has the Seq of that
// change. The caller must not send the result to anyone before Commit has returned for that Seq.
type Backend interface {
	Committer
	// Acquire acquires a mutex or renews its lease. It returns a Ticket only with StatusWaiting,
	// and ErrOutOfMemory only if the engine is a Keyspace.
	Acquire(ctx context.Context, r AcquireRequest) (Outcome, Ticket, error)
	// Guard renews a lease. It returns StatusRenewed or StatusLost.
	Guard(ctx context.Context, r GuardRequest) (Outcome, error)
	// Release reports whether it ended a tenure.
	Release(ctx context.Context, r ReleaseRequest) (bool, Seq, error)
	// Owner returns the tenure, or the zero Tenure if the mutex is free.
	Owner(ctx context.Context, mutex string) (Tenure, Seq, error)
	// Queue returns the first count waiters, in order.
	Queue(ctx context.Context, mutex string, count int) ([]QueueEntry, Seq, error)
	// Scan returns a page of the mutexes.
	Scan(ctx context.Context, r ScanRequest) (ScanPage, Seq, error)
	// Check reports whether token is the token of the current tenure.
	Check(ctx context.Context, mutex string, token uint64) (bool, Seq, error)
	// Break ends the tenure of any owner and reports whether there was one.
	Break(ctx context.Context, mutex, reason string) (bool, Seq, error)
	// History returns events of a mutex, oldest first.
	History(ctx context.Context, r HistoryRequest) ([]Event, Seq, error)
	// The caller calls Subscribed when a client of this server has subscribed to a channel, before
	// the client gets the reply. If pattern is true, channel is a glob of channels. From then on
	// the backend publishes what its store announces on the channel. If the channel is a polling
	// waiter's own, the backend can notify that waiter. After an error the backend tries again by
	// itself. There is no call for a client that unsubscribes: the backend asks its Notices who
	// still subscribes.
	Subscribed(ctx context.Context, channel string, pattern bool) (Seq, error)
	// Stats returns the figures now.
	Stats() Stats
}

// Committer makes changes durable. It is safe for concurrent use. A connection commits once for all
// commands of a pipeline, with the largest Seq of their results. A result with Seq 0 depends on no
// change.
type Committer interface {
	// Commit returns when every change up to seq is durable. It also publishes the notices and
	// wakes the waiters that depend on these changes. After an error, no result that depends on seq
	// may be sent. Nothing that a client does interrupts Commit, because other clients depend on the
	// commit too. The backend bounds the wait.
	Commit(seq Seq) error
}

// Notices publishes an engine's notices to the subscribers of this server. Its methods must not
// block, and must not call the engine.
type Notices interface {
	// Publish publishes a message. It returns how many clients subscribe to the channel by name.
	Publish(channel, payload string) int
	// Subscribed reports whether a client subscribes to the channel by name.
	Subscribed(channel string) bool
	// SubscribedPattern reports whether a client subscribes to exactly this glob.
	SubscribedPattern(pattern string) bool
	// Any reports whether there is any subscription.
	Any() bool
}

// Change is a change of a mutex that an engine stores.
type Change struct {
	Seq   Seq // the change's own number
	Kind  ChangeKind
	Lease Lease // for ChangePut; ChangeDelete uses only Lease.Mutex
	// Events are the events of the change. Their Seqs are not larger than that of the change.
	Events []Event
	// Token is the largest token that the change has used, 0 = none. Every later tenure must have a
	// larger token, even if this change stores no lease.
	Token uint64
	// Shown says that the change has notices or wake-ups. In a cluster they wait until a majority has
	// the change.
	Shown bool
	// Forced requires an fsync before the reply in every mode with a disk. A forced change ends a
	// tenure against its owner's will. If a crash lost the change, the old owner and a new one
	// could both hold the mutex.
	Forced bool
}

// ChangeKind is what a Change does to the stored lease.
type ChangeKind uint8

// The kinds.
const (
	ChangeNone   ChangeKind = iota // nothing: the change has only events, which a crash may lose
	ChangePut                      // the lease is written
	ChangeDelete                   // the lease is removed
)
