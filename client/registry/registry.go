// Package registry makes reentrant locks by key, as Spring's RedisLockRegistry does.
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

// Mode is how the locks of a Registry wait.
type Mode int

const (
	// Notified waits in the server's queue, first come, first served, and gets a notice when it
	// is next. If notices cannot be delivered, it asks again when the owner's lease ends.
	Notified Mode = iota
	// Spin asks every SpinEvery and takes no queue entry. The first that asks when the lock is
	// free gets it. Waiters in the queue go before it.
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
	// Prefix is the registry's key: the lock of a key is the mutex Prefix:key. All processes that
	// share the locks have the same Prefix.
	Prefix string

	// ID begins the contender ids of the locks: ID:1, ID:2 and so on, one for each tenure. "" means
	// a new client.NewID. No two registries may have the same ID, and a process must not use it
	// again after a restart. The server takes such registries for one.
	ID string

	// ExpireAfter is how long a lock that nobody unlocks stays locked: 1 ms to 24 h, 0 means 60
	// s. The lock is not renewed by itself. To hold it longer, lock it once more.
	ExpireAfter time.Duration

	Mode Mode // the zero value is Notified

	// SpinEvery is the pause between two requests in the mode Spin; 0 means 100 ms.
	SpinEvery time.Duration

	// Capacity is how many locks the registry remembers; 0 means 100,000. Beyond that it forgets
	// locks that are not locked, the least recently used first. It never forgets a locked one.
	Capacity int
}

const (
	defaultExpireAfter = 60 * time.Second
	defaultSpinEvery   = 100 * time.Millisecond
	defaultCapacity    = 100_000
)

// Registry makes reentrant locks by key. A program that does not come from Spring should use
// [client.Client.Do]. In the process a lock belongs to one [Holder] at a time; among processes,
// to one registry at a time.
type Registry struct {
	c   *client.Client
	cfg Config

	mu       sync.Mutex // guards what follows, and the local locks with their attempts
	locks    map[string]*localLock
	idle     *list.List    // of *localLock that may be forgotten, the least recently used last
	running  int           // attempts that are not over
	attempts uint64        // attempts that were ever made
	closed   chan struct{} // closed by Close
	over     chan struct{} // closed when closed and no attempt is left
}

// Holder locks and unlocks. It has the role of a thread in Java, since goroutines have no
// identity: a Holder may lock again what it has locked. Goroutines that share a Holder share its
// locks.
type Holder struct {
	_ byte // pointers to values without a size may be equal
}

// New returns a Registry. It does not connect. The error names the field that is not valid.
func New(c *client.Client, cfg Config) (*Registry, error) {
	if cfg.ID == "" {
		cfg.ID = client.NewID()
	}
	if cfg.ExpireAfter == 0 {
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
		c: c, cfg: cfg, locks: make(map[string]*localLock), idle: list.New(),
		closed: make(chan struct{}), over: make(chan struct{}),
	}, nil
}

// ID returns the beginning of the contender ids of the locks.
func (r *Registry) ID() string { return r.cfg.ID }

// NewHolder returns a new Holder.
func (r *Registry) NewHolder() *Holder { return &Holder{} }

// Obtain returns the lock of a key: the same one each time, as long as the registry remembers it.
// A forgotten Lock and the new Lock of its key lock the same mutex. Obtain sends no request. The
// error says why Prefix:key is not a valid name of a mutex.
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

// ExpireUnusedOlderThan forgets the locks that are not locked and have not been used for that
// long. It returns how many.
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

// Close unlocks all locks, ends all waits, and waits for the server's replies until Timeout. A
// lock that it could not unlock is free when its lease ends. Later calls to lock return
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
		return fmt.Errorf("close the registry %s: %w; it continues in the background", r.cfg.Prefix, contend.ErrNoAnswer)
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

// pinLocked returns the local lock of a key. The registry does not forget it until unpinLocked is
// called as often. For a new key, lock becomes its handle; if it is nil, a new one.
func (r *Registry) pinLocked(key string, lock *Lock) *localLock {
	e := r.locks[key]
	if e == nil {
		if lock == nil {
			lock = &Lock{r: r, key: key, mutex: r.cfg.Prefix + ":" + key}
		}
		e = &localLock{key: key, lock: lock}
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
