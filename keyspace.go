package simba

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Endless is the TTL of a lease that does not expire.
const Endless = time.Duration(math.MaxInt64)

// KeepTTL is a TTL for Tx.Take: the new tenure keeps the lease of the tenure that it replaces.
const KeepTTL = time.Duration(-1)

// MaxLockTTL is the longest TTL of a lock key, except Endless.
const MaxLockTTL = 100 * 365 * 24 * time.Hour

// A Keyspace is a Backend whose mutexes are Redis keys too. The key k is the mutex k, the key's
// value is the owner, and the key expires with the lease. Names and owners may be any bytes.
type Keyspace interface {
	Backend
	// Update runs f in a transaction and commits its changes as one step. If data that f has read
	// has changed by then, Update runs f again with a new Tx. After 100 runs it returns
	// ErrConflict. So f must change nothing except through its Tx. The function f may call Update
	// itself.
	//
	// If f returns an error, Update changes no mutex and returns that error. The error may depend
	// on stale data, so Update may run f again before it returns the error. Tokens that f has drawn
	// stay used. Update returns ErrRecovering, ErrTooLarge or ErrStopped if it cannot commit.
	//
	// Commands that only read use Update too. If they read a token with Tx.Fence, the commit must
	// make this token durable.
	//
	// Before the caller sends a reply that depends on the transaction, it must call Commit with the
	// Seq. This rule also holds if Update returns an error.
	Update(f func(Tx) error) (Seq, error)
	// UpdateOne is Update for an f that uses only this mutex. It runs f once, while nobody else can
	// use the mutex. So f may not wait, yield or call the Keyspace.
	UpdateOne(mutex string, f func(Tx) error) (Seq, error)
	// Watch counts the changes of a mutex until Unwatch. It returns the present count, for
	// Tx.Unchanged. If queue is true, it counts the changes of the queue. Otherwise it counts the
	// changes of the lock and of the reservation.
	Watch(mutex string, queue bool) (version uint64)
	// Unwatch ends one Watch of the mutex.
	Unwatch(mutex string)
	// Bytes returns about how much memory the mutexes, their queues and their fields take.
	Bytes() int64
	// LimitQueues limits the memory of each queue, in bytes; 0 = no limit. At the limit, Acquire
	// returns ErrOutOfMemory to a contender that would need a new queue entry.
	LimitQueues(bytes int64)
}

// ErrConflict is returned by Update when other clients keep changing what the transaction reads.
var ErrConflict = errors.New("the keys have changed meanwhile")

// ErrRecovering is returned by Update when it would begin a tenure during the recovery delay.
var ErrRecovering = errors.New("recovering from an unclean stop: new grants are delayed until possibly lost leases expire")

// MaxTxKeys is how many keys a transaction may read or change, and how many messages it may
// publish. Other requests wait during its commit.
const MaxTxKeys = 10_000

// ErrTooLarge is returned by Update when a transaction has more than MaxTxKeys keys or messages.
var ErrTooLarge = fmt.Errorf("transaction too large: at most %d keys and %[1]d messages", MaxTxKeys)

// Lock is the state of a Redis key, which is a mutex. The zero Lock is a key that does not exist.
type Lock struct {
	Token uint64 // of the tenure; 0 = the key does not exist
	Owner string // the value of a string; of a hash, the name of the field that took the mutex
	// Fields are the fields of a hash, in the order of their setting; nil for a string. Locks
	// share the slice, so its elements must not be changed.
	Fields []Field

	// TTL is the rest of the lease in whole milliseconds, or Endless. In a Take or Change it is the
	// length of the new lease. Take also accepts KeepTTL.
	TTL time.Duration
	// EndsAt is when the lease ends, in Unix milliseconds of the server's clock; 0 = never. In a
	// Take or Change, 0 means that TTL applies.
	EndsAt int64
}

// Field is a field of a hash.
type Field struct{ Name, Value string }

// Exists reports whether there is a lock.
func (l Lock) Exists() bool { return l.Token != 0 }

// QueueMember is a waiter as a member of a Redis sorted set.
type QueueMember struct {
	Contender string
	Score     float64 // as set by ZADD; if none has set it, the time of arrival in Unix seconds
}

// Tx reads and changes some keys in one step. It sees its own changes; other clients see them after
// the commit. It holds no lock between its calls. It is for one goroutine. It is valid only until
// the function that Update runs returns.
type Tx interface {
	// Now returns the time of the transaction, which does not advance.
	Now() time.Time
	// Unchanged reports whether a mutex that Keyspace.Watch counts still has this version. If the
	// version changes between this call and the commit, the transaction conflicts.
	Unchanged(mutex string, queue bool, version uint64) bool

	// Lock returns the lock of a mutex.
	Lock(mutex string) Lock
	// MayTake reports whether owner may take a mutex that has no lock. It is false while the mutex
	// is reserved for another waiter, and during the recovery delay. A script that did not get a
	// lock reads the lock's owner. So after MayTake has returned false for a free mutex, Lock shows
	// an owner: the waiter with the reservation, or "" if there is no reservation. Take works even
	// while the mutex is reserved.
	MayTake(mutex, owner string) bool
	// Refuse notes that a script asked in vain to take the mutex for owner. It saw the lock that
	// Lock returns now.
	Refuse(mutex, owner string)
	// Take begins a tenure with the Owner, Fields and lease of l. If the mutex already has a
	// tenure, Take breaks that tenure.
	Take(mutex string, l Lock)
	// Change sets the Owner and Fields of a lock without ending the tenure. If renew is true,
	// Change also renews the lease from now.
	Change(mutex string, l Lock, renew bool)
	// Drop ends the tenure. The commit hands the mutex off to its next waiter, unless the
	// transaction takes the mutex again.
	Drop(mutex string)

	// Token returns the fencing token of a mutex's tenure, 0 if there is none. If the transaction
	// has begun the tenure, Token draws its token. After Drop it returns the token of the ended
	// tenure until DropToken, because the token's key outlives the lock's key.
	Token(mutex string) uint64
	// DropToken makes Token return 0. It changes no tenure.
	DropToken(mutex string)
	// DroppedToken returns a mutex whose token was dropped by DropToken although its tenure goes
	// on.
	DroppedToken() (mutex string, ok bool)
	// Fence returns the token of a mutex's tenure. If there is none, Fence returns the largest token
	// of any mutex so far.
	Fence(mutex string) uint64
	// NextToken draws a token, larger than all before. It is the token of the tenure that the
	// transaction has begun or begins next. If the transaction begins no tenure or is not
	// committed, no tenure gets the token.
	NextToken(mutex string) uint64

	// Queue returns the waiters of a mutex, in order. The caller must not change the list. The list
	// is valid until the next Enqueue or Dequeue.
	Queue(mutex string) []QueueMember
	// Queued returns a contender's entry in the queue; ok is false if it has none.
	Queued(mutex, contender string) (m QueueMember, ok bool)
	// QueueFull reports whether the queue was at its limit when the transaction first read it.
	QueueFull(mutex string) bool
	// Enqueue adds a contender to the queue by score, or moves it. Entries with the same score keep
	// the order of their arrival.
	Enqueue(mutex, contender string, score float64)
	// Dequeue removes a contender from the queue. If the mutex is free at the end of the
	// transaction, the commit offers the mutex to that contender first. The scripts of Simba on
	// the JVM rely on this: to release a mutex, they dequeue the first waiter and notify it.
	Dequeue(mutex, contender string)

	// Publish sends a message when the transaction is durable.
	Publish(channel, payload string)

	// Discard forgets the changes so far but keeps the reads. So a key that is read again has the
	// same value.
	Discard()
	// TooLarge reports whether the transaction has more than MaxTxKeys keys or messages. Then keys
	// that the transaction has not read before appear not to exist.
	TooLarge() bool
}
