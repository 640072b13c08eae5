package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client/internal/names"
)

// NoTransition is the Transition of a lease without a transition window.
const NoTransition time.Duration = -1

const (
	defaultTimeout    = 3 * time.Second
	defaultTTL        = 10 * time.Second
	defaultTransition = 2 * time.Second
	minTimeout        = time.Millisecond
)

// Options of a Client. The zero value is ready to use.
type Options struct {
	// Timeout bounds the time of a request, and the time of a release in Stop, Unlock and Close. It
	// is 1 ms or more; 0 means 3 s. The go-redis client obeys it only if its option
	// ContextTimeoutEnabled is set. If not, a request may continue in the background after Timeout,
	// until the timeouts and retries of go-redis end it.
	Timeout time.Duration

	// TTL and Transition are the windows of all leases that do not set their own. A TTL of 0 means
	// 10 s, a Transition of 0 means 2 s, and NoTransition means no transition window. See
	// ContenderConfig. If the server refuses a lease as too long, the Client shortens the defaults.
	// It does not shorten windows that the program sets: requests then fail with a TooLongError.
	TTL, Transition time.Duration

	// Logger logs outages, refusals, lost mutexes, overdue callbacks, and panics of scheduled work.
	// nil means slog.Default(). The log handler must not wait for a call of the Client.
	Logger *slog.Logger

	// Hooks are called when contenders acquire, release or lose mutexes. The zero value means none.
	Hooks Hooks
}

// Client creates contenders and observers. They share its go-redis client, and its connections for
// notices. It is safe for concurrent use.
type Client struct {
	rdb             redis.UniversalClient
	timeout         time.Duration
	ttl, transition time.Duration // as in Options, with the defaults
	defaultTTL      bool          // Options does not set the TTL
	defaultWindow   bool          // Options does not set the Transition
	longest         atomic.Int64  // the longest lease of the server, in nanoseconds; 0 = not known
	log             *slog.Logger
	hooks           Hooks
	subscriptions   *subscriptions
	active          *activeSet
	outage          outage
	suspend         suspendWatch
}

// New returns a Client that sends its requests with rdb. It does not connect. The caller closes rdb
// after the Client. The error names the option that is not valid.
//
// Give the Client a go-redis client of its own, and set ContextTimeoutEnabled. In a shared pool,
// blocking commands of other code (BLPOP, XREAD BLOCK) can take all connections. Then a leader
// cannot renew in time and loses its mutex. New refuses a redis.Ring and a redis.ClusterClient.
func New(rdb redis.UniversalClient, o Options) (*Client, error) {
	if err := checkRedis(rdb); err != nil {
		return nil, err
	}
	if o.Timeout != 0 && o.Timeout < minTimeout {
		return nil, fmt.Errorf("Timeout is %v, less than %v", o.Timeout, minTimeout)
	}
	c := &Client{
		rdb: rdb, timeout: o.Timeout, log: o.Logger, hooks: o.Hooks, subscriptions: newSubscriptions(rdb), active: newActiveSet(),
		ttl: defaultTTL, transition: defaultTransition, defaultTTL: o.TTL == 0, defaultWindow: o.Transition == 0,
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	c.outage.log = c.log
	c.ttl, c.transition = c.windows(o.TTL, o.Transition)
	if err := checkWindows(c.ttl, c.transition); err != nil {
		return nil, err
	}
	if !contextTimeouts(rdb) {
		c.log.Warn("ContextTimeoutEnabled is off: the timeouts and retries of go-redis make requests last longer than Timeout",
			"timeout", c.timeout)
	}
	return c, nil
}

// checkRedis returns why a Client cannot use rdb.
func checkRedis(rdb redis.UniversalClient) error {
	switch v := reflect.ValueOf(rdb); {
	case rdb == nil:
		return errors.New("rdb is nil")
	case v.Kind() == reflect.Pointer && v.IsNil():
		return fmt.Errorf("rdb is a nil %T", rdb)
	}
	switch rdb.(type) {
	case *redis.Ring, *redis.ClusterClient:
		return fmt.Errorf("rdb is a %T, which cannot reach a simba-resp server: connect with redis.NewClient", rdb)
	}
	return nil
}

// contextTimeouts reports whether the requests of rdb end with their contexts. It returns true if
// the type of rdb is unknown.
func contextTimeouts(rdb redis.UniversalClient) bool {
	r, ok := rdb.(*redis.Client)
	return !ok || r.Options().ContextTimeoutEnabled
}

// Close stops all contenders and observers of the Client, unlocks all its Locks, and closes the
// connections for notices. It waits at most Options.Timeout for that. Later calls of the Client
// return ErrClosed. Close does not close the go-redis client.
//
// If Close returns an error, the server may keep a mutex for this Client until the lease ends. The
// error matches ErrUnavailable if the server has not replied in time, or if a callback or the work
// of Do has not returned. It matches ErrClosed if the go-redis client was closed before.
func (c *Client) Close() error {
	empty := c.active.close()
	t := time.NewTimer(c.timeout)
	defer t.Stop()
	var err error
	select {
	case <-empty:
		err = c.active.err()
	case <-t.C:
		select {
		case <-empty:
			err = c.active.err()
		default:
			err = errNoAnswer
		}
	}
	c.subscriptions.close()
	if err != nil {
		return fmt.Errorf("close the Client: the server may keep a mutex until its lease ends: %w", err)
	}
	return nil
}

// Owner returns the owner of a mutex and does not contend for it. The zero Owner means that the
// mutex is free. The error is the error of ctx, ErrUnavailable, ErrClosed, or the server's error
// reply.
func (c *Client) Owner(ctx context.Context, mutex string) (owner Owner, err error) {
	err = c.query(ctx, mutex, func(ctx context.Context) (err error) {
		owner, err = c.owner(ctx, mutex)
		return err
	})
	return owner, err
}

// Check reports whether the tenure with this fencing token still lasts. A resource calls Check
// before it acts for a client that claims to be the owner. The tenure may end between the reply and
// the action. A resource that can store a number needs no Check: it keeps the largest token that it
// has received, and refuses smaller ones. Check returns the same errors as Owner.
func (c *Client) Check(ctx context.Context, mutex string, token uint64) (holds bool, err error) {
	if token == 0 || token > math.MaxInt64 { // no tenure has such a token
		return false, names.CheckMutex(mutex)
	}
	err = c.query(ctx, mutex, func(ctx context.Context) (err error) {
		holds, err = c.check(ctx, mutex, token)
		return err
	})
	return holds, err
}

// query calls ask with a context that ends after Timeout. ask sends a read-only request.
func (c *Client) query(ctx context.Context, mutex string, ask func(context.Context) error) error {
	if err := names.CheckMutex(mutex); err != nil {
		return err
	}
	if c.active.isClosed() {
		return errClientClosed
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := ask(limited)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done() // comes in a moment: the deadline has passed, but its timer has not fired yet
		return ctx.Err()
	}
	return err
}

// windows replaces a window of 0 by the Client's default, and NoTransition by 0.
func (c *Client) windows(ttl, transition time.Duration) (time.Duration, time.Duration) {
	if ttl == 0 {
		ttl = c.ttl
	}
	switch transition {
	case 0:
		transition = c.transition
	case NoTransition:
		transition = 0
	}
	return ttl, transition
}

// terms are the arguments that a contender sends with each request.
type terms struct {
	mutex, id                 string
	ttl, transition           time.Duration
	defaultTTL, defaultWindow bool // whether fit may shorten the TTL, and the transition window
}

// terms returns the terms of a contender. The error names the field that is not valid.
func (c *Client) terms(mutex, id string, ttl, transition time.Duration) (terms, error) {
	if id == "" {
		id = defaultID()
	}
	t := terms{mutex: mutex, id: id, defaultTTL: ttl == 0 && c.defaultTTL, defaultWindow: transition == 0 && c.defaultWindow}
	t.ttl, t.transition = c.windows(ttl, transition)
	if err := names.CheckMutex(t.mutex); err != nil {
		return terms{}, err
	}
	if err := names.CheckContender(t.id); err != nil {
		return terms{}, err
	}
	return t, checkWindows(t.ttl, t.transition)
}

func checkWindows(ttl, transition time.Duration) error {
	if err := names.CheckMillis("TTL", ttl, names.MinTTL, names.MaxTTL); err != nil {
		return err
	}
	return names.CheckMillis("Transition", transition, 0, names.MaxTransition)
}

func (t terms) lease() time.Duration { return t.ttl + t.transition }

// fit shortens default windows so that the lease is at most longest. It returns false if windows
// that the program has set are too long.
func (t *terms) fit(longest time.Duration) bool {
	ttl, transition := t.ttl, t.transition
	switch {
	case t.lease() <= longest:
		return true
	case t.defaultTTL && t.defaultWindow:
		ttl = time.Duration(float64(longest) * ttl.Seconds() / t.lease().Seconds()).Truncate(time.Millisecond)
		transition = longest - ttl
	case t.defaultTTL:
		ttl = longest - transition
	case t.defaultWindow:
		transition = longest - ttl
	}
	if ttl+transition > longest || checkWindows(ttl, transition) != nil {
		return false
	}
	t.ttl, t.transition = ttl, transition
	return true
}
