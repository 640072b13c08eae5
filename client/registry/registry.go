// Package registry makes reentrant locks by key, like Spring's RedisLockRegistry.
package registry

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/contend"
	"github.com/simba-resp/simba-resp/client/internal/names"
)

// Mode says how a Registry waits for its locks.
type Mode int

const (
	// Notified takes an entry in the server's queue, first come, first served. The server sends a
	// notice when the registry is next. Without a notice, the registry asks when the owner's lease
	// ends.
	Notified Mode = iota
	// Spin sends a request every SpinEvery and takes no queue entry. If the lock is free and the
	// queue is empty, the first registry that asks gets the lock.
	Spin
)

// String returns the name of the mode.
func (m Mode) String() string {
	switch m {
	case Notified:
		return "Notified"
	case Spin:
		return "Spin"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// Config configures a Registry.
type Config struct {
	// Prefix begins the names of the mutexes: the lock of a key is the mutex Prefix:key. Processes
	// that share the locks must have the same Prefix.
	Prefix string

	// ID begins the contender ids of the locks: ID:1, ID:2 and so on, one for each attempt to lock.
	// "" means a new client.NewID. Two registries must not have the same ID, since the server would
	// treat their contenders as one. So a process must not use its ID again after a restart.
	ID string

	// ExpireAfter is the lease of a lock, 1 ms to 24 h; 0 means 60 s. If the server refuses 60 s as
	// too long, 0 means the server's longest lease. The registry does not renew the lease by
	// itself. To keep a lock longer, lock it once more.
	ExpireAfter time.Duration

	Mode Mode // the zero value is Notified

	// SpinEvery is the pause between two requests in the mode Spin; 0 means 100 ms.
	SpinEvery time.Duration

	// Capacity is how many locks the registry remembers; 0 means 100,000. If there are more, it
	// forgets unlocked locks, the least recently used first.
	Capacity int
}

const (
	defaultExpireAfter = 60 * time.Second
	defaultSpinEvery   = 100 * time.Millisecond
	defaultCapacity    = 100_000
)

// Registry makes reentrant locks by key. Only one [Holder] at a time has the lock of a key, also if
// several processes have registries with the same Prefix. A program that does not come from Spring
// should use [client.Client.Do] instead. A Registry is safe for concurrent use.
type Registry struct {
	c            *client.Client
	cfg          Config
	defaultLease bool // Config does not set ExpireAfter

	mu       sync.Mutex // guards what follows, and the local locks with their attempts
	locks    map[string]*localLock
	idle     *list.List    // the *localLocks that may be forgotten, the least recently used last
	running  int           // the number of attempts that are not over
	attempts uint64        // the number of all attempts so far
	closed   chan struct{} // closed by Close
	over     chan struct{} // closed when the registry is closed and all attempts are over
}

// Holder is the identity of a lock's owner. It has the role of a thread in Java, because goroutines
// have no identity. A Holder that has a lock may lock it again. Goroutines that share a Holder
// share its locks.
type Holder struct {
	_ byte // Holders are compared by pointer, and pointers to two values of size 0 may be equal
}

// New returns a Registry. It sends no request. The error names the field that is not valid.
func New(c *client.Client, cfg Config) (*Registry, error) {
	if cfg.ID == "" {
		cfg.ID = client.NewID()
	}
	defaultLease := cfg.ExpireAfter == 0
	if defaultLease {
		cfg.ExpireAfter = defaultExpireAfter
	}
	if cfg.SpinEvery == 0 {
		cfg.SpinEvery = defaultSpinEvery
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = defaultCapacity
	}
	if err := names.CheckMutex(cfg.Prefix); err != nil {
		return nil, fmt.Errorf("Prefix: %w", err)
	}
	if err := names.CheckContender(cfg.ID); err != nil {
		return nil, fmt.Errorf("ID: %w", err)
	}
	if longest := names.MaxContenderLen - len(":18446744073709551615"); len(cfg.ID) > longest {
		return nil, fmt.Errorf("ID has %d bytes, at most %d are allowed", len(cfg.ID), longest)
	}
	if err := names.CheckMillis("ExpireAfter", cfg.ExpireAfter, names.MinTTL, names.MaxTTL); err != nil {
		return nil, err
	}
	switch {
	case cfg.Mode != Notified && cfg.Mode != Spin:
		return nil, fmt.Errorf("Mode is %v, not Notified or Spin", cfg.Mode)
	case cfg.SpinEvery < 0:
		return nil, fmt.Errorf("SpinEvery is %v, less than 0", cfg.SpinEvery)
	case cfg.Capacity < 0:
		return nil, fmt.Errorf("Capacity is %d, less than 0", cfg.Capacity)
	}
	return &Registry{
		c: c, cfg: cfg, defaultLease: defaultLease, locks: make(map[string]*localLock), idle: list.New(),
		closed: make(chan struct{}), over: make(chan struct{}),
	}, nil
}

// ID returns the string with which the contender ids of the locks begin.
func (r *Registry) ID() string { return r.cfg.ID }

// NewHolder returns a new Holder.
func (r *Registry) NewHolder() *Holder { return &Holder{} }

// Obtain returns the lock of a key. As long as the registry remembers a Lock, Obtain returns the
// same Lock for its key. After that it returns a new Lock, which locks the same mutex as the
// forgotten one. Obtain sends no request. The error says why Prefix:key is not a valid name of a
// mutex.
func (r *Registry) Obtain(key string) (*Lock, error) {
	mutex := r.cfg.Prefix + ":" + key
	if key == "" {
		return nil, errors.New("the key is empty")
	}
	if err := names.CheckMutex(mutex); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pinLocked(key, nil)
	r.unpinLocked(e)
	return e.lock, nil
}

// ExpireUnusedOlderThan forgets the unlocked locks that nobody has used for longer than age. It
// returns the number of forgotten locks.
func (r *Registry) ExpireUnusedOlderThan(age time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for at := r.idle.Back(); at != nil && time.Since(at.Value.(*localLock).used) > age; at = r.idle.Back() {
		r.forgetLocked(at)
		n++
	}
	return n
}

// Close unlocks all locks and ends all waits. It waits for the server's replies. After the Timeout
// of the Client it returns client.ErrUnavailable, and continues in the background. If a release
// fails, the lock is free when its lease ends. Later calls of Lock, TryLock and TryLockFor return
// client.ErrClosed.
func (r *Registry) Close() error {
	r.mu.Lock()
	if !r.isClosedLocked() {
		close(r.closed)
		if r.running == 0 {
			close(r.over)
		}
	}
	var all []contend.Run
	for _, e := range r.locks {
		if e.attempt != nil {
			all = append(all, e.attempt.run)
		}
	}
	r.mu.Unlock()
	for _, run := range all {
		run.Stop()
	}
	late := time.NewTimer(contend.Timeout(r.c))
	defer late.Stop()
	select {
	case <-r.over:
		return nil
	case <-late.C:
		return fmt.Errorf("close the registry %s: %w; the releases continue in the background", r.cfg.Prefix, contend.ErrNoAnswer)
	}
}

func (r *Registry) isClosedLocked() bool {
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}

// pinLocked returns the local lock of a key. If there is none, pinLocked makes a local lock with
// the given handle, or with a new handle if the given one is nil. The registry does not forget the
// local lock until unpinLocked is called as often as pinLocked.
func (r *Registry) pinLocked(key string, handle *Lock) *localLock {
	e := r.locks[key]
	if e == nil {
		if handle == nil {
			handle = &Lock{r: r, key: key, mutex: r.cfg.Prefix + ":" + key}
		}
		e = &localLock{key: key, lock: handle}
		r.locks[key] = e
	}
	if e.at != nil {
		r.idle.Remove(e.at)
		e.at = nil
	}
	e.pins++
	return e
}

func (r *Registry) unpinLocked(e *localLock) {
	if e.pins--; e.pins == 0 {
		e.used = time.Now()
		e.at = r.idle.PushFront(e)
		for len(r.locks) > r.cfg.Capacity && r.idle.Len() > 0 {
			r.forgetLocked(r.idle.Back())
		}
	}
}

func (r *Registry) forgetLocked(at *list.Element) {
	delete(r.locks, r.idle.Remove(at).(*localLock).key)
}
