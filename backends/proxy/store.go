package proxy

import (
	"context"
	"sync"
	"time"
)

// Store keeps the tenures of an Engine's mutexes. Servers that use the same store share them. Other
// programs may write to the store too. All methods are safe for concurrent use.
//
// The methods up to Scan are steps. Each step is atomic in the store, and durable when it returns.
// The Engine sends at most one step of a mutex at a time, except for a Read that is not settled,
// and for one Renew of the owner beside the other step. A step ends with its context, and has no
// effect after the Horizon of the context's end.
//
// The store decides by one clock, its own or that of its servers, when a lease ends. A lease that
// has ended is never renewed, even if the step was waiting when it ended: another client may know
// of the end already. Tokens of a mutex grow from tenure to tenure, and are the same for a whole
// tenure.
//
// A step returns one of these errors:
//
//   - NotDone, if the step has certainly changed nothing and never will;
//   - *simba.MisconfiguredError, if an operator has to change the store;
//   - *simba.NameError, if the store cannot hold the name, or mixes it up with another one;
//   - any other error, if the step may have been done, or may still be done until Horizon. The
//     store is cut off, slow, or no longer the primary.
//
// A step must prove that it reached the node that decides, such as the writable primary. A node
// that was demoted or lags behind must return an error, even to a Read.
type Store interface {
	// Start is called once, before all other methods. It may create what the store needs.
	Start(context.Context, Hooks) error

	// Take begins the tenure l if the mutex is free. If l.Owner is the owner, Take renews its lease
	// instead. It sets the Token, the Revision and the Mark of l, but may leave the Mark 0. For
	// Held, Take returns the state that was in the way.
	Take(ctx context.Context, mutex string, l *Lease) (Taking, State, error)
	// Renew begins both windows anew if l.Owner is the owner, and if the tenure has l.Token; 0 =
	// any token. It sets the Token and the Mark of l, but may leave the Mark 0. ok is false if
	// there is no such tenure. Without a token, ok may be false for other reasons too: the Engine
	// then reads the token and tries again.
	Renew(ctx context.Context, mutex string, l *Lease) (ok bool, err error)
	// Pass ends the tenure in from and begins the tenure to, in one step. If from is a free mutex,
	// Pass only begins the tenure. If to is nil, Pass only ends it. ok is false if the mutex was in
	// another state, or if the lease in from has ended.
	//
	// Pass sets to.Mark before it sends the step, so that the Engine recognizes the tenure even if
	// the reply is lost. After the step it sets the Token and the Revision of to. It returns the
	// revision after the step.
	Pass(ctx context.Context, mutex string, from From, to *Lease) (revision uint64, ok bool, err error)
	// Read returns the state of a mutex. If settled is true, it first waits for the steps and the
	// transactions of anybody that are changing the mutex. If they take too long, it returns a
	// Locked NotDone.
	//
	// If settled is false, Read waits for nobody. A state with an Owner that is not Live may then
	// precede a renewal which began in time and is being committed.
	Read(ctx context.Context, mutex string, settled bool) (State, error)
	// Scan returns the mutexes that are Live and whose ScanKey is from ≤ key ≤ to, by ascending
	// key. It returns the first limit of them, 0 = all.
	Scan(ctx context.Context, from, to uint64, limit int) ([]Scanned, error)

	// ScanKey returns the place of a mutex in a scan. It never changes, is the same on all servers,
	// and fits into 32 bits.
	ScanKey(mutex string) uint64
	// Horizon returns the time on the store's clock (see State.Now) from which a step can no longer
	// have an effect if its context ends at t.
	Horizon(t time.Time) int64
	// CheckNames returns a *simba.NameError for names that the store cannot hold. It does no I/O.
	// An empty contender is fine.
	CheckNames(mutex, contender string) error
	// Watch and Unwatch do not block, and call no hook. Between them, a store that learns of changes
	// by other servers and programs calls Hooks.Changed for those of the mutex. A lost notice costs
	// time, because the Engine reads the mutex at the end of the lease anyway.
	Watch(mutex string)
	Unwatch(mutex string)
	// Ping asks whether the store answers and accepts changes. The Engine calls it every 10 s, and
	// more often while the store is away.
	Ping(ctx context.Context) error
	// Check returns what is wrong with the store: see Checks.
	Check(ctx context.Context) ([]Fault, error)
	// Close closes all connections. The Engine calls it when no other method runs.
	Close() error
}

// Hooks are functions of an Engine that its Store calls. Except for Listed, they do not block, and
// may be called from within a step. A Store calls them without a lock that it takes in Watch,
// Unwatch, Listen or WatchAll.
type Hooks struct {
	// Connected is called for each new connection. The Engine then checks the store soon, because
	// the connection may lead to another node.
	Connected func()
	// Changed is called when a watched mutex may have changed. "" means any of them, after the
	// store may have missed changes.
	Changed func(mutex string)

	// The rest is for a Queue.

	// Left is called when a queue entry of this server has ended because the contender asked another
	// server, or because the store cannot keep its lease any more. reason "" = the contender owns the
	// mutex now.
	Left func(mutex, contender, reason string)
	// Listens is called when a contender with an entry here subscribes to its own channel at
	// another server. Listens returns false if the Engine does not know the contender.
	Listens func(mutex, contender string) bool
	// Listeners returns the contenders that subscribe to their own channel of a mutex here.
	Listeners func(mutex string) map[string]bool
	// Listed is called for WatchAll with all mutexes. first says that it is the first call for this
	// WatchAll. Listed may block: it reads the mutexes.
	Listed func(mutexes []string, first bool)
	// Lost is called when an entry of this server is gone: the tenure with the token, or a queue entry
	// (token 0). reason is that of the event; "" = the lease has expired. The Engine queues its blocked
	// waiters again, and notifies the polling ones, which have to ask again.
	Lost func(mutex, contender string, token uint64, reason string)
}

// State is what the store has about a mutex. Times are Unix milliseconds on the clock that decides
// when leases end. A mutex that the store does not know has a State with only Now.
type State struct {
	// Owner is the owner, or the last one: then Live is false. It is "" if the last tenure was
	// released, or if there was none.
	Owner string
	Token uint64 // of the owner's tenure
	// Revision grows by 1 when a tenure begins, and by 1 when it ends by a release, so by 2 when
	// Pass does both. Expiry does not change it. So the Engine learns how a tenure ended that it
	// did not see end, and whether a free mutex had an owner since. A store that forgets free
	// mutexes may start again at a smaller value.
	Revision uint64
	// Mark differs between any two leases of a mutex. A renewal changes it.
	Mark int64

	AcquiredAt   int64 // when the windows began
	TTLAt        int64
	TransitionAt int64
	Now          int64 // when the store has read the state
	Live         bool  // the lease is running

	// Of a Queue. If Next is a waiter of another server, the state is Live without an Owner, so that
	// nobody else takes the mutex.
	Next      string // gets the free mutex next; "" = nobody waits
	Waiters   int    // how many contenders wait, at all servers
	Elsewhere bool   // the owner or Next belongs to another server
	// Position returns a contender's position in the queue, 0 if it does not wait; nil = unknown.
	Position func(contender string) int
	NextOwns bool // other servers see Next, a blocked waiter of this server, as the owner

	readAt time.Time // by the clock of this server; zero = unknown
}

// Lease is a lease that a step begins or renews. The Engine sets the fields up to Since.
type Lease struct {
	Owner           string
	TTL, Transition time.Duration
	Since           time.Time // just before the step was sent: the windows begin no earlier
	Queueing        Queueing  // of a Take of a Queue

	Token    uint64
	Revision uint64 // when the tenure began; 0 = unknown
	Mark     int64  // as in State; 0 = unknown

	Elsewhere bool // as in State; of a Queue
}

// From is the state in which Pass expects a mutex.
type From struct {
	Owner    string // "" = the mutex is free
	Token    uint64 // of the tenure
	Mark     int64  // of the lease, which a renewal changes; 0 = any
	Revision uint64 // of a free mutex, as it was read
	// Acquired is the Mark of the last lease that ACQUIRE or Pass gave, which GUARD does not change; 0 =
	// any. Of a Queue.
	Acquired int64
}

// Free reports whether Pass expects no tenure.
func (f From) Free() bool { return f.Owner == "" }

// Taking is what Take has done.
type Taking uint8

// The results of Take.
const (
	Held    Taking = iota // nothing: another contender is the owner, or the state changed meanwhile
	Granted               // a tenure has begun
	Renewed               // the owner's lease is renewed
)

// Scanned is a mutex that a Scan has found.
type Scanned struct {
	Mutex string
	Key   uint64 // ScanKey of the mutex
	State
}

// NotDone is the error of a step that has certainly changed nothing.
type NotDone struct {
	Err error
	// Locked says that another transaction was in the way. The Engine repeats the step until its
	// context ends. A step that waits for a lock must return after about a second, because it
	// occupies a connection: see maxLocked.
	Locked bool
}

func (e NotDone) Error() string { return e.Err.Error() }

func (e NotDone) Unwrap() error { return e.Err }

// Elsewhere is the error of a step that another server has to make. The Engine calls Ask without any
// lock. If Ask returns nil, the Engine makes the request again with the same context. Answers then has
// what the other server has answered.
type Elsewhere struct {
	Ask func(ctx context.Context) error
}

// EndedElsewhere is a key of Answers. The value is the From of the tenure that the request should end,
// and that another server has ended.
const EndedElsewhere = "ended"

// Answers returns what other servers have answered to the request of a context, for the Queue's use.
func Answers(ctx context.Context) *sync.Map {
	if answers, ok := ctx.Value(answersKey{}).(*sync.Map); ok {
		return answers
	}
	return new(sync.Map) // background work asks nobody
}

type answersKey struct{}

func (e *Elsewhere) Error() string { return "another server has to be asked" }

func (s State) left() time.Duration { return Between(s.Now, s.TransitionAt) }

func (s State) ttlLeft() time.Duration { return Between(s.Now, s.TTLAt) }

// left returns the time until each window ends, at least 0. It counts from Since, so the result is
// never longer than the time left by the store's clock.
func (l *Lease) left() (ttl, transition time.Duration) {
	passed := time.Since(l.Since)
	return roundUp(l.TTL - passed), roundUp(l.TTL + l.Transition - passed)
}

// roundUp rounds up to milliseconds, so that a client that sleeps that long does not wake early.
func roundUp(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// state returns the state after the step that began the tenure or renewed the lease. Its times only
// serve to compute what is left. It is Live even if the reply was late: a read shows the end.
func (l *Lease) state() State {
	now := time.Since(l.Since).Milliseconds()
	s := State{Owner: l.Owner, Token: l.Token, Revision: l.Revision, Mark: l.Mark, Now: now, Live: true, Elsewhere: l.Elsewhere}
	s.TTLAt = l.TTL.Milliseconds()
	s.TransitionAt = s.TTLAt + l.Transition.Milliseconds()
	return s
}
