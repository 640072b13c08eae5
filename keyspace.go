package simba

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Endless is the TTL of a lease that does not end by itself.
const Endless = time.Duration(math.MaxInt64)

// KeepTTL is the TTL of a new lock that keeps the lease of the lock that it replaces.
const KeepTTL = time.Duration(-1)

// MaxLockTTL is the longest lease of a lock key that ends.
const MaxLockTTL = 100 * 365 * 24 * time.Hour

// A Keyspace is a Backend whose mutexes are Redis keys too. The key k is the mutex k. Its value is
// the owner, and its expiry the end of the lease. Names and owners may be any bytes.
type Keyspace interface {
	Backend
	// Update runs do in a transaction and commits its changes as one step. If something that do
	// has read has changed by then, Update runs do again with a new Tx. After 100 runs it returns
	// ErrConflict. So do must not change anything but through its Tx. It may call Update itself.
	//
	// If do returns an error, Update returns it and changes no mutex. It may use up a token that do
	// has read. It runs do again in this case too, because the error may depend on what do has
	// read. Update returns ErrRecovering, ErrTooLarge or ErrStopped if it cannot commit.
	//
	// Commands that only read use Update too. They run in scripts and in EXEC beside writes, and a
	// read of a fence may use up a token.
	//
	// The Seq must be committed before any result of the transaction is acknowledged, whatever
	// the error is.
	Update(do func(Tx) error) (Seq, error)
	// Watch counts the changes of a mutex until Unwatch and returns the present count, for
	// Tx.Unchanged. It counts changes of the lock, or of the queue if queue is true.
	Watch(mutex string, queue bool) (version uint64)
	// Unwatch ends one Watch of the mutex.
	Unwatch(mutex string)
	// Bytes is about how much memory the mutexes take, with their queues and fields.
	Bytes() int64
	// SetKeyEvents chooses which keyspace notifications of Redis are published; none at first.
	SetKeyEvents(KeyEvents)
}

// ErrConflict is returned by Update when other clients keep changing what the transaction reads.
var ErrConflict = errors.New("the keys have changed meanwhile")

// ErrRecovering is returned by Update when it would begin a tenure during the recovery delay
// after an unclean stop.
var ErrRecovering = errors.New("recovering from an unclean stop: new grants are delayed until possibly lost leases expire")

// MaxTxKeys is how many keys a transaction may read or change, and how many messages it may
// publish. Other requests wait while it is committed.
const MaxTxKeys = 10_000

// ErrTooLarge is returned by Update for a transaction with more keys or messages than MaxTxKeys.
var ErrTooLarge = fmt.Errorf("transaction too large: at most %d keys and %[1]d messages", MaxTxKeys)

// Lock is a mutex as a key. The zero Lock is a key that does not exist.
type Lock struct {
	Token uint64 // of the tenure; 0 = there is none
	Owner string // the value of a string, or the field of a hash that took the mutex
	// Fields are the fields of a hash, in the order of their setting; nil for a string. Locks
	// share the slice, so its elements must not be changed.
	Fields []Field

	// TTL is the rest of the lease, or the length of a new one, in whole milliseconds; Endless =
	// it does not end. Take also accepts KeepTTL.
	TTL time.Duration
	// EndsAt is when the lease ends, in Unix milliseconds of the server's clock; 0 = it does
	// not end. In a Take or Change, 0 = see TTL.
	EndsAt int64
}

// Field is a field of a hash.
type Field struct{ Name, Value string }

// Exists reports whether there is a lock.
func (l Lock) Exists() bool { return l.Token != 0 }

// QueueMember is an entry of a mutex' queue as a member of a sorted set.
type QueueMember struct {
	Contender string
	Score     float64 // without a ZADD, the time of arrival in Unix seconds
}

// Tx reads and changes some keys in one step. It sees its own changes; other clients see them
// after the commit. It holds no lock between its calls. It is for one goroutine, and valid only
// until the function that Update calls returns.
type Tx interface {
	// Now is the time of the transaction. It does not move.
	Now() time.Time
	// Unchanged reports whether a mutex that Keyspace.Watch counts still has this version. The
	// transaction conflicts if the version changes before the commit.
	Unchanged(mutex string, queue bool, version uint64) bool

	// Lock returns the lock behind a key.
	Lock(mutex string) Lock
	// MayTake reports whether owner may take a mutex that has no lock. It is false while the mutex
	// is reserved for another waiter, and during the recovery delay. After a call of MayTake for a
	// reserved mutex, Lock shows the waiter with the reservation as the owner. That is for scripts,
	// which read the owner of a lock that they could not get. Take works even while the mutex is
	// reserved.
	MayTake(mutex, owner string) bool
	// Take begins a tenure with a lock's Owner, Fields and lease. It breaks a tenure that the
	// mutex has.
	Take(mutex string, l Lock)
	// Change sets the Owner and Fields of a lock without ending its tenure. If renew is true, it
	// also renews the lease from now.
	Change(mutex string, l Lock, renew bool)
	// Drop ends the tenure. The commit hands the mutex off to its next waiter, unless the
	// transaction itself takes it.
	Drop(mutex string)

	// Token returns the fencing token of a mutex' tenure, 0 if it has none. For a tenure that the
	// transaction has begun, it draws the token. After Drop it returns the token of the tenure that
	// ended, until DropToken, because the token's key outlives the lock's key.
	Token(mutex string) uint64
	// DropToken makes Token return 0. It changes no tenure; see DroppedToken.
	DropToken(mutex string)
	// DroppedToken returns a mutex whose token was dropped although its tenure goes on.
	DroppedToken() (mutex string, ok bool)
	// Fence returns the token of a mutex' tenure. If it has none, Fence returns the largest token
	// of any mutex so far.
	Fence(mutex string) uint64
	// NextToken draws a token, larger than all before. It becomes the token of the tenure that
	// the transaction has begun or begins next. If it begins none, the next tenure gets a larger
	// token. A token that is not committed is not used.
	NextToken(mutex string) uint64

	// Queue returns the waiters of a mutex, in order. The caller must not change the list, which
	// is valid until the next Enqueue or Dequeue.
	Queue(mutex string) []QueueMember
	// Queued returns a contender's entry in the queue; ok is false if it has none.
	Queued(mutex, contender string) (m QueueMember, ok bool)
	// Enqueue adds a contender to the queue by score, or moves it. Entries with the same score
	// are in the order of their arrival.
	Enqueue(mutex, contender string, score float64)
	// Dequeue removes a contender from the queue. If the mutex is free at the end of the
	// transaction, the contender is its next waiter.
	Dequeue(mutex, contender string)

	// Publish sends a message when the transaction is durable.
	Publish(channel, payload string)

	// Discard forgets the changes so far. It keeps the reads, so reading a key again returns the
	// same.
	Discard()
	// TooLarge reports whether the transaction has more keys or messages than MaxTxKeys. From
	// then on, keys that it has not read before look as if they did not exist.
	TooLarge() bool
}

// KeyEvents is a set of kinds of keyspace notifications.
type KeyEvents uint8

// The kinds, with the letters of Redis' notify-keyspace-events.
const (
	KeyEventsByKey   KeyEvents = 1 << iota // K: on __keyspace@0__:<key>
	KeyEventsByEvent                       // E: on __keyevent@0__:<event>
	KeyEventGeneric                        // g: del, expire
	KeyEventString                         // $: set
	KeyEventExpired                        // x: expired
)
