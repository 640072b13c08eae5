package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

// Errors that errors.Is matches.
var (
	// ErrLost is the cause of an ownership context that ended without being asked to, and
	// what Unlock returns then: the lease was not renewed in time, or was
	// broken. Another may own the mutex.
	ErrLost = errors.New("the mutex was lost")
	// ErrReleased is the cause of an ownership context that ended since the
	// mutex is given up.
	ErrReleased = errors.New("the mutex is given up")
	// ErrNotAcquired is returned by who wanted a mutex for a while, or at once, and has not got it.
	ErrNotAcquired = errors.New("the mutex is not acquired")
	// ErrInUse is returned by what can be used once at a time and is in use.
	ErrInUse = errors.New("it is in use")
	// ErrClosed is returned by what is closed.
	ErrClosed = errors.New("it is closed")
)

// Options of a Client. The zero value is ready to use.
type Options struct {
	// Timeout bounds the time that a request may take; 0 means 3 s. The go-redis
	// client honours it only with its ContextTimeoutEnabled; without, its own
	// timeouts and retries hold, and this one is when we ask again over another connection.
	Timeout time.Duration
	// Logger is told of requests that fail, panics of scheduled work and lost mutexes; nil
	// discards.
	Logger *slog.Logger
}

// Client is what contenders share: the go-redis client and a subscriber's connection.
type Client struct {
	rdb     redis.UniversalClient
	timeout time.Duration
	log     *slog.Logger
	radio   *radio

	farewells sync.WaitGroup // contenders that are giving up what they have
}

// New returns a Client that makes its requests with rdb, which stays the caller's. It does
// not connect. The error names the option that cannot be.
func New(rdb redis.UniversalClient, o Options) (*Client, error) {
	switch {
	case rdb == nil:
		return nil, errors.New("rdb is nil")
	case o.Timeout < 0:
		return nil, fmt.Errorf("Timeout is %v, less than 0", o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = 3 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{rdb: rdb, timeout: o.Timeout, log: o.Logger, radio: newRadio(rdb)}, nil
}

// Close waits for what is being given up in the background, as after a Lock whose context has ended, as long
// as a request may take, and ends the subscriber's connection. Stop first what the Client has
// made; what still runs is not called by notices any more. The go-redis client is not closed. The
// error says that something may be left at the server until its lease is over.
func (c *Client) Close() error {
	c.radio.close()
	done := make(chan struct{})
	go func() { // ends with the last of them
		defer close(done)
		c.farewells.Wait()
	}()
	t := time.NewTimer(c.timeout)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
		return fmt.Errorf("give up what is left at the server: %w", errUnanswered)
	}
}

// Owner asks who owns a mutex now, without wanting it. The zero Owner means nobody.
func (c *Client) Owner(ctx context.Context, mutex string) (Owner, error) {
	if err := simba.CheckMutex(mutex); err != nil {
		return Owner{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.owner(ctx, mutex)
}

// terms are those of a contender.
type terms struct {
	mutex, id       string
	ttl, transition time.Duration
}

// check returns an error that names what cannot be.
func (t terms) check() error {
	if err := simba.CheckMutex(t.mutex); err != nil {
		return err
	}
	if err := simba.CheckContender(t.id); err != nil {
		return err
	}
	if err := checkMillis("TTL", t.ttl, simba.MinTTL, simba.MaxTTL); err != nil {
		return err
	}
	return checkMillis("Transition", t.transition, 0, simba.MaxTransition)
}

func checkMillis(name string, d, lowest, highest time.Duration) error {
	switch {
	case d < lowest || d > highest:
		return fmt.Errorf("%s is %v, not %v to %v", name, d, lowest, highest)
	case d%time.Millisecond != 0:
		return fmt.Errorf("%s is %v, not a whole number of milliseconds", name, d)
	}
	return nil
}

// lease is how long a grant lasts.
func (t terms) lease() time.Duration { return t.ttl + t.transition }
