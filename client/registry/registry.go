// Package registry makes reentrant locks by key, like Spring's RedisLockRegistry.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/names"
)

// Config configures a Registry.
type Config struct {
	// Prefix begins the names of the mutexes: the lock of a key is the mutex Prefix:key. Processes
	// that share the locks must have the same Prefix.
	Prefix string

	// ExpireAfter is the lease of a lock, 1 ms to 24 h; 0 means 60 s. The engine zookeeper refuses
	// more than half of its session timeout. Unless Renew is set, the registry does not renew it by
	// itself, as in Spring. To keep a lock longer, lock it once more.
	ExpireAfter time.Duration
	Renew       bool

	// SpinEvery makes the registry wait as Spring's spin lock: it sends a request in this interval
	// and takes no queue entry. With 0, it takes an entry in the server's queue, first come, first
	// served.
	SpinEvery time.Duration
}

const defaultExpireAfter = 60 * time.Second

// Registry makes reentrant locks by key. Only one [Holder] at a time has the lock of a key, also if
// several processes have registries with the same Prefix. A program that does not come from Spring
// should use [client.Client.Do] instead. A Registry is safe for concurrent use.
type Registry struct {
	c       *client.Client
	cfg     Config
	options []client.Option // of each lock
	closing context.Context // ended by close, with the error of later calls
	close   context.CancelCauseFunc

	mu      sync.Mutex       // guards what follows, and the counts of the entries
	entries map[place]*entry // what is locked
}

type place struct {
	mutex  string
	holder *Holder
}

// entry is the lock of a Holder. Holders of one process contend at the server, which serves them
// first come, first served.
type entry struct {
	count int // how often the holder has locked it
	lock  *client.Lock
}

// Holder is the identity of a lock's owner. It has the role of a thread in Java, because goroutines
// have no identity. A Holder that has a lock may lock it again. Goroutines should not share a Holder:
// while a Lock or TryLock of one of them has not returned, that of another returns client.ErrInUse.
type Holder struct {
	asking sync.Mutex // held by a Lock or TryLock until it returns
}

// New returns a Registry. It sends no request. The error names the field that is not valid.
func New(c *client.Client, cfg Config) (*Registry, error) {
	cfg.ExpireAfter = cmp.Or(cfg.ExpireAfter, defaultExpireAfter)
	switch err := names.CheckMillis("ExpireAfter", cfg.ExpireAfter, names.MinTTL, names.MaxTTL); {
	case cfg.Prefix == "":
		return nil, errors.New("Prefix is empty")
	case cfg.SpinEvery < 0:
		return nil, fmt.Errorf("SpinEvery is %v, less than 0", cfg.SpinEvery)
	case err != nil:
		return nil, err
	}
	r := &Registry{c: c, cfg: cfg, entries: make(map[place]*entry)}
	r.options = []client.Option{client.WithTTL(cfg.ExpireAfter), client.WithTransition(0)}
	if !cfg.Renew {
		r.options = append(r.options, client.WithoutRenewal())
	}
	r.closing, r.close = context.WithCancelCause(context.Background())
	return r, nil
}

// NewHolder returns a new Holder.
func (r *Registry) NewHolder() *Holder { return &Holder{} }

// Obtain returns the lock of a key. It sends no request. Two Locks of one key are the same lock. The
// server refuses to lock it if Prefix:key is no valid name of a mutex.
func (r *Registry) Obtain(key string) *Lock { return &Lock{r, r.cfg.Prefix + ":" + key} }

// Close unlocks all locks and ends all waits. It waits for the server's replies to the unlocks, at
// most for the Timeout of the Client. If a release fails, the lock is free when its lease ends. Later
// calls of Lock, TryLock and TryLockFor return client.ErrClosed.
func (r *Registry) Close() error {
	r.close(fmt.Errorf("the registry is %w", client.ErrClosed))
	r.mu.Lock()
	results := make(chan error, len(r.entries))
	for _, e := range r.entries {
		go func() { results <- e.lock.Unlock(context.Background()) }()
	}
	r.mu.Unlock()
	var failure error
	for range cap(results) {
		if err := <-results; err != nil && !errors.Is(err, client.ErrLost) {
			failure = fmt.Errorf("close the registry %s: %w; the releases continue in the background", r.cfg.Prefix, err)
		}
	}
	return failure
}

// wait acquires a mutex. It waits in the server's queue, or asks every SpinEvery.
func (r *Registry) wait(ctx context.Context, mutex string, o ...client.Option) (*client.Lock, error) {
	if r.cfg.SpinEvery == 0 {
		return r.c.Lock(ctx, mutex, o...)
	}
	for last := error(nil); ; {
		lock, err := r.c.TryLock(ctx, mutex, o...)
		if !errors.Is(err, client.ErrNotAcquired) && !errors.Is(err, client.ErrUnavailable) {
			return lock, err
		}
		if last == nil || ctx.Err() == nil { // else the end of ctx has cut the request
			last = err
		}
		select {
		case <-time.After(r.cfg.SpinEvery):
		case <-ctx.Done():
			return nil, &client.NotAcquiredError{Mutex: mutex, Err: fmt.Errorf("%w (%w)", ctx.Err(), last)}
		}
	}
}
