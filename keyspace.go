package simba

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Endless is the TTL of a lease that does not end by itself.
const Endless = time.Duration(math.MaxInt64)

// KeepTTL is the TTL of a new lock that takes over the lease of the one that it replaces.
const KeepTTL = time.Duration(-1)

// MaxLockTTL is the longest lease of a lock key that ends.
const MaxLockTTL = 100 * 365 * 24 * time.Hour

// A Keyspace is a Backend whose mutexes are Redis keys too: the key k is the mutex k, its
// value the owner, its expiry the end of the lease. Names and owners may be any bytes.
type Keyspace interface {
	Backend
	// Begin begins a transaction. Its user must Close it.
	Begin() Tx
	// Bytes is about how much memory the mutexes take, with their queues and fields.
	Bytes() int64
	// SetKeyEvents chooses the changes that are told on the channels of Redis' keyspace
	// notifications; none at first.
	SetKeyEvents(KeyEvents)
}

// ErrConflict is returned by Tx.Commit when something that the transaction has read is no
// longer so: nothing is done, and it may be tried from its beginning.
var ErrConflict = errors.New("the keys have changed meanwhile")

// ErrRecovering is returned by Tx.Commit when it would begin a tenure in the quiet time after an
// unclean stop.
var ErrRecovering = errors.New("nobody new is granted anything until the leases that a crash may have forgotten have ended")

// MaxTxKeys is how many keys a transaction may read or change, and how many messages it may
// publish: while it is committed, the others wait.
const MaxTxKeys = 10_000

// ErrTooLarge is returned by Tx.Commit for a transaction that has more.
var ErrTooLarge = fmt.Errorf("transaction too large: at most %d keys and %[1]d messages", MaxTxKeys)

// Lock is a mutex as a key. The zero Lock is a key that does not exist.
type Lock struct {
	Token uint64 // of the tenure; 0 = there is none
	Owner string // the value of a string; of a hash, the field whose setting took the mutex
	// Fields are those of a hash, in the order of their setting; nil = it is a string. A
	// Lock shares them: whoever changes them makes new ones.
	Fields []Field

	// TTL is what is left of the lease, or how long a new one is, in whole milliseconds;
	// Endless = it does not end. In a Take, KeepTTL is allowed too.
	TTL time.Duration
	// EndsAt is when the lease ends, in Unix milliseconds of the server's clock; 0 = it
	// does not. In a Take or Change, 0 = by TTL.
	EndsAt int64
}

// Field is one of a hash.
type Field struct{ Name, Value string }

// Exists reports whether there is a lock.
func (l Lock) Exists() bool { return l.Token != 0 }

// Place is a contender's in a mutex' queue, which is a sorted set too.
type Place struct {
	Contender string
	Score     float64 // of one that no ZADD has set: when it came, in Unix seconds
}

// Tx reads and changes some keys in one step. What it has changed it sees itself, and
// nobody else before Commit. Nothing is locked meanwhile: Commit fails with ErrConflict if
// what was read is another by then. For one goroutine.
type Tx interface {
	// Now is when the transaction began, or was resumed; it does not move.
	Now() time.Time
	// Watch has Commit fail if a key changes at all, also if it is as it was by then; with
	// queue, the queue of that mutex. It comes before everything else.
	Watch(mutex string, queue bool)
	// Resume lets a transaction that only watched keys so far go on now. It reports false
	// if one of them has changed: Commit can only fail.
	Resume() bool

	// Lock returns the lock behind a key.
	Lock(mutex string) Lock
	// Open reports whether owner may have a mutex that has no lock: it is not another's
	// turn, and no quiet time. If not, from then on Lock shows whose turn it is as if it had
	// the lock: scripts look who has what they could not get. Take is possible all the same
	// in another's turn.
	Open(mutex, owner string) bool
	// Take begins a tenure with a lock's Owner, Fields and lease. A tenure that the mutex
	// has is broken by that.
	Take(mutex string, l Lock)
	// Change sets the Owner and Fields of a lock without ending its tenure; with renew the
	// lease too, anew from now.
	Change(mutex string, l Lock, renew bool)
	// Drop ends the tenure; the mutex is handed on to its next waiter, unless the
	// transaction itself takes it.
	Drop(mutex string)

	// Token returns the fencing token of a mutex' tenure, 0 if it has none. That of a tenure which the
	// transaction has begun is reserved by this. After Drop it is that of the tenure which ended,
	// until DropToken: a key beside the lock's does not end with it.
	Token(mutex string) uint64
	// DropToken has Token return 0. It changes no tenure; see DroppedToken.
	DropToken(mutex string)
	// DroppedToken returns a mutex whose token was dropped though its tenure goes on.
	DroppedToken() (mutex string, ok bool)
	// Fence returns the largest token of a mutex so far: that of its tenure, if it has one; else
	// the largest that any mutex had.
	Fence(mutex string) uint64
	// NextToken reserves a token, larger than all before. The tenure that the transaction has begun, or
	// begins next, has it; if it begins none, the token of the next tenure is larger. One that is not
	// committed is not used.
	NextToken(mutex string) uint64

	// Queue returns who waits for a mutex, in order. It is not to be changed, and valid until
	// the next Enqueue or Dequeue.
	Queue(mutex string) []Place
	// Place returns a contender's place in the queue; ok is false if it has none.
	Place(mutex, contender string) (p Place, ok bool)
	// Enqueue gives a contender a place by score, or moves it there. Of those with the same
	// score the first to come is the first.
	Enqueue(mutex, contender string, score float64)
	// Dequeue takes a contender out of the queue. If the mutex is free at the end of the
	// transaction, it is its turn.
	Dequeue(mutex, contender string)

	// Publish sends a message when the transaction is durable.
	Publish(channel, payload string)

	// Discard forgets the changes so far and keeps the reads: what is read again is as it was
	// first. If nothing follows, Commit only tells whether that is so, and by its Seq what it
	// rests on.
	Discard()
	// TooLarge reports whether it has more keys or messages than Commit takes. Keys that it has not seen before look then as if
	// they did not exist.
	TooLarge() bool
	// Commit does it all, or nothing with ErrConflict, ErrRecovering, ErrTooLarge or ErrStopped. The Seq must be
	// settled before anything of the transaction is told, also after ErrConflict and ErrRecovering.
	// The transaction is over then.
	Commit(ctx context.Context) (Seq, error)
	// Close gives the transaction up, if it is not over. It may be called more than once.
	Close()
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
