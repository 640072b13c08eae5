package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client/internal/names"
)

// NoTransition as a Transition is a lease without a transition window.
const NoTransition time.Duration = -1

const (
	defaultTimeout    = 3 * time.Second
	defaultTTL        = 10 * time.Second
	defaultTransition = 2 * time.Second
	// minTimeout is less than a round trip on any network.
	minTimeout = time.Millisecond
)

// Options of a Client. The zero value is ready to use.
type Options struct {
	// Timeout bounds the time of a request, and the time of a release in Stop, Unlock and Close.
	// It is 1 ms or more; 0 means 3 s. The go-redis client obeys it only with
	// ContextTimeoutEnabled. Without that option, its own timeouts and retries hold its
	// connections longer, and the request continues in the background.
	Timeout time.Duration

	// TTL and Transition are the windows of all leases that do not set their own. 0 means 10 s
	// and 2 s. NoTransition means no transition window. See ContenderConfig.
	TTL, Transition time.Duration

	// Logger logs outages, refusals, lost mutexes, overdue callbacks, and panics of scheduled
	// work. nil means slog.Default(). Its handler must not wait for anything of the Client.
	Logger *slog.Logger

	// Hooks are called when contenders acquire, release or lose mutexes. The zero value means none.
	Hooks Hooks
}

// Client has what its contenders share: the go-redis client and the subscriber's connection. It
// is safe for concurrent use.
type Client struct {
	rdb             redis.UniversalClient
	timeout         time.Duration
	ttl, transition time.Duration // as in Options, with the defaults
	log             *slog.Logger
	hooks           Hooks
	subscriptions   *subscriptions
	active          *activeSet
	outage          outage
	suspend         suspendWatch
}

// New returns a Client that sends its requests with rdb. It does not connect. The caller closes
// rdb after the Client. The error names the option that is not valid.
//
// Give the Client a go-redis client of its own. Blocking commands of other code (BLPOP, XREAD
// BLOCK) take connections from the same pool, and a leader that cannot renew in time loses its
// mutex. Set its ContextTimeoutEnabled. New refuses a redis.Ring and a redis.ClusterClient.
func New(rdb redis.UniversalClient, o Options) (*Client, error) {
	if err := checkRedis(rdb); err != nil {
		return nil, err
	}
	if o.Timeout != 0 && o.Timeout < minTimeout {
		return nil, fmt.Errorf("Timeout is %v, less than %v", o.Timeout, minTimeout)
	}
	c := &Client{
		rdb: rdb, timeout: o.Timeout, log: o.Logger, hooks: o.Hooks, subscriptions: newSubscriptions(rdb), active: newActiveSet(),
		ttl: defaultTTL, transition: defaultTransition,
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

// contextTimeouts reports whether requests end with their contexts. It reports true if rdb is of
// an unknown type.
func contextTimeouts(rdb redis.UniversalClient) bool {
	r, ok := rdb.(*redis.Client)
	return !ok || r.Options().ContextTimeoutEnabled
}

// Close stops everything that runs by the Client, as Stop and Unlock do, and closes the
// subscriber's connection. It waits for that until Timeout. Later calls of the Client return
// ErrClosed. Close does not close the go-redis client.
//
// An error means that something may be left at the server until its lease ends. It matches
// ErrUnavailable if the server has not replied in time, or if a callback or the work of Do has
// not returned. It matches ErrClosed if the go-redis client was closed before.
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
		return fmt.Errorf("close: something may be left at the server: %w", err)
	}
	return nil
}

// Owner returns the owner of a mutex and does not contend for it. The zero Owner means that the
// mutex is free. The error is that of ctx, ErrUnavailable, ErrClosed, or the server's error
// reply.
func (c *Client) Owner(ctx context.Context, mutex string) (owner Owner, err error) {
	err = c.query(ctx, mutex, func(ctx context.Context) (err error) {
		owner, err = c.owner(ctx, mutex)
		return err
	})
	return owner, err
}

// Check reports whether the tenure with that fencing token still owns the mutex. A resource calls
// it before it acts for a client that claims to be the owner. The tenure may end between the
// reply and the action. A resource that can store a number needs no Check: it keeps the largest
// token that it has received, and refuses a smaller one. The errors are those of Owner.
func (c *Client) Check(ctx context.Context, mutex string, token uint64) (holds bool, err error) {
	if token == 0 || token > math.MaxInt64 { // no tenure has it
		return false, names.CheckMutex(mutex)
	}
	err = c.query(ctx, mutex, func(ctx context.Context) (err error) {
		holds, err = c.check(ctx, mutex, token)
		return err
	})
	return holds, err
}

// query sends a request that changes nothing.
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
		<-ctx.Done() // a connection's timer fired before the timer of ctx
		return ctx.Err()
	}
	return err
}

// windows returns the windows of a lease, with the Client's defaults instead of zeros.
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

// terms are what a contender sends in its requests.
type terms struct {
	mutex, id       string
	ttl, transition time.Duration
}

// terms returns the terms of a contender. The error names the field that is not valid.
func (c *Client) terms(mutex, id string, ttl, transition time.Duration) (terms, error) {
	if id == "" {
		id = defaultID()
	}
	ttl, transition = c.windows(ttl, transition)
	t := terms{mutex, id, ttl, transition}
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

// lease returns the length of a lease.
func (t terms) lease() time.Duration { return t.ttl + t.transition }
