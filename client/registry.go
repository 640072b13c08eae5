package client

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// RegistryMode is how the locks of a Registry wait for others.
type RegistryMode int

const (
	// Notified waits in the server's queue and is called by a notice: first come, first
	// served. Where notices do not reach, it asks again when the owner's lease is over.
	Notified RegistryMode = iota
	// Spin asks again and again, and takes no place in the queue: who asks first when the lock is
	// free gets it, and who waits in the queue goes before it.
	Spin
)

// String returns the mode's name.
func (m RegistryMode) String() string {
	switch m {
	case Notified:
		return "Notified"
	case Spin:
		return "Spin"
	}
	return fmt.Sprintf("RegistryMode(%d)", int(m))
}

// RegistryConfig says what a Registry's locks are called and how long they last.
type RegistryConfig struct {
	// Prefix is the registry's key: the lock of a key is the mutex Prefix:key. All
	// processes that share the locks have the same.
	Prefix string

	// ID begins the contender ids of its locks: ID:1, ID:2 and so on, one for each tenure; ""
	// means a new NewID. No two registries may have the same, nor one after a restart: to
	// the server they would be one, and own each other's locks.
	ID string

	// ExpireAfter is how long a lock that nobody unlocks stays locked: 1 ms to 24 h, 0 means 60 s.
	// It is not renewed by itself: who needs it longer locks it once more.
	ExpireAfter time.Duration

	Mode RegistryMode // the zero value is Notified

	// SpinEvery is the pause between two requests in the mode Spin; 0 means 100 ms.
	SpinEvery time.Duration

	// Capacity is how many locks it remembers; 0 means 100,000. Beyond, it forgets those that are
	// not locked, the least recently used first. Those that are locked are never
	// forgotten, however many they are.
	Capacity int
}

const (
	defaultExpireAfter = 60 * time.Second
	defaultSpinEvery   = 100 * time.Millisecond
	defaultCapacity    = 100_000
)

// Registry makes reentrant locks by key, as Spring's RedisLockRegistry does; if you do not come
// from Spring, lock by [Client.Do]. In the process a lock belongs to one [Holder] at a time; among
// processes, to one registry at a time.
type Registry struct {
	c   *Client
	cfg RegistryConfig

	mu       sync.Mutex // guards what follows, and the latches with their tenures
	locks    map[string]*latch
	idle     *list.List    // of *latch: those that may be forgotten, the least recently used last
	runs     int           // pursuits that are not over
	attempts uint64        // pursuits that were ever made
	closed   chan struct{} // closed by Close
	over     chan struct{} // closed when closed and no pursuit is left
}

// Holder is who locks and unlocks. Goroutines have no identity, so a Holder stands for what
// Java's thread is: a lock that it has it may lock again. Goroutines that share a Holder share
// its locks.
type Holder struct {
	_ byte // pointers to what has no size need not differ
}

// NewRegistry returns a Registry. It does not connect. The error names the field that
// cannot be.
func (c *Client) NewRegistry(cfg RegistryConfig) (*Registry, error) {
	if cfg.ID == "" {
		cfg.ID = NewID()
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
	if err := checkMutex(cfg.Prefix); err != nil {
		return nil, fmt.Errorf("Prefix: %w", err)
	}
	if err := checkContender(cfg.ID); err != nil {
		return nil, fmt.Errorf("ID: %w", err)
	}
	if longest := maxContenderLen - len(":18446744073709551615"); len(cfg.ID) > longest {
		return nil, fmt.Errorf("ID has %d bytes, at most %d are allowed", len(cfg.ID), longest)
	}
	if err := checkMillis("ExpireAfter", cfg.ExpireAfter, minTTL, maxTTL); err != nil {
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
		c: c, cfg: cfg, locks: make(map[string]*latch), idle: list.New(),
		closed: make(chan struct{}), over: make(chan struct{}),
	}, nil
}

// ID returns what the contender ids of its locks begin with.
func (r *Registry) ID() string { return r.cfg.ID }

// NewHolder returns a new Holder.
func (r *Registry) NewHolder() *Holder { return &Holder{} }

// Obtain returns the lock of a key: the same one each time, as long as the registry remembers it.
// One that was forgotten locks the same as the new one. It does not ask the server. The error
// says why Prefix:key is not a valid name of a mutex.
func (r *Registry) Obtain(key string) (*RegistryLock, error) {
	mutex := r.cfg.Prefix + ":" + key
	if key == "" {
		return nil, errors.New("the key is empty")
	}
	if err := checkMutex(mutex); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pinLocked(key, nil)
	r.unpinLocked(e)
	return e.lock, nil
}

// ExpireUnusedOlderThan forgets the locks that are not locked and have not been used for that long,
// and returns how many. A program that locks ever new keys calls it now and then, or trusts in
// Capacity.
func (r *Registry) ExpireUnusedOlderThan(age time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for at := r.idle.Back(); at != nil && time.Since(at.Value.(*latch).used) > age; at = r.idle.Back() {
		r.forgetLocked(at)
		n++
	}
	return n
}

// Close unlocks all that is locked, ends all waiting, and waits for the server's answers as
// long as a request may take. What it has locked and could not unlock is free when its
// lease is over. All that is locked later is refused with ErrClosed.
func (r *Registry) Close() error {
	r.mu.Lock()
	if !r.isClosedLocked() {
		close(r.closed)
		if r.runs == 0 {
			close(r.over)
		}
	}
	var all []*pursuit
	for _, e := range r.locks {
		if e.tenure != nil {
			all = append(all, e.tenure.run)
		}
	}
	r.mu.Unlock()
	for _, p := range all {
		p.stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.c.timeout)
	defer cancel()
	select {
	case <-r.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the registry %s: %w; it continues in the background", r.cfg.Prefix, errUnanswered)
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

// pinLocked returns the latch of a key, which is not forgotten until it is unpinned as often. If
// the registry does not know the key, lock becomes its handle, or a new one.
func (r *Registry) pinLocked(key string, lock *RegistryLock) *latch {
	e := r.locks[key]
	if e == nil {
		if lock == nil {
			lock = &RegistryLock{r: r, key: key, mutex: r.cfg.Prefix + ":" + key}
		}
		e = &latch{key: key, lock: lock}
		r.locks[key] = e
	}
	if e.at != nil {
		r.idle.Remove(e.at)
		e.at = nil
	}
	e.pins++
	return e
}

func (r *Registry) unpinLocked(e *latch) {
	if e.pins--; e.pins == 0 {
		e.used = time.Now()
		e.at = r.idle.PushFront(e)
		for len(r.locks) > r.cfg.Capacity && r.idle.Len() > 0 {
			r.forgetLocked(r.idle.Back())
		}
	}
}

func (r *Registry) forgetLocked(at *list.Element) {
	delete(r.locks, r.idle.Remove(at).(*latch).key)
}
