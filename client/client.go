package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	defaultTimeout    = 3 * time.Second
	defaultTTL        = 10 * time.Second
	defaultTransition = 2 * time.Second
	minTimeout        = time.Millisecond
)

// Options of a Client. The zero value is ready to use.
type Options struct {
	// Timeout bounds the time of a request, and the time of a release in Unlock, Lead and Close. A
	// renewal may take as long as the lease lasts. A call obeys the deadline of its ctx, but may
	// notice only after Timeout that ctx was cancelled while a request had no reply. Timeout is 1 ms
	// or more; 0 means 3 s.
	Timeout time.Duration

	// TTL and Transition are the two windows of a lease. The owner renews before the TTL ends. In
	// the transition window it still owns the mutex, so one slow reply does not lose the lease.
	// After a crash of the owner, the mutex is free when both have passed. If both are 0, they are
	// 10 s and 2 s, or less if the server refuses such a lease as too long. If only TTL is set,
	// there is no transition window.
	TTL, Transition time.Duration

	// IDPrefix begins the contender ids that the Client makes: prefix, counter:pid@host~random. The
	// default is the name of the user and a colon, as the server demands; for the user "default"
	// it is empty. The Client asks the server for the name when it needs its first id.
	IDPrefix string

	// Logger logs outages, refusals and lost mutexes. nil means slog.Default(). The log handler must
	// not wait for a call of the Client.
	Logger *slog.Logger

	// Hook, if not nil, is called when something happens to one of the contenders. It must not
	// block, because it delays the contender, and must not wait until a method of the Client
	// returns. A hook that panics ends the process. Its context does not end, and has the values of
	// the context of the caller, such as the span of a trace.
	Hook func(context.Context, Event)
}

// Client locks mutexes, leads and watches, with one go-redis client. It is safe for concurrent use.
type Client struct {
	rdb             *redis.Client
	timeout         time.Duration
	ttl, transition time.Duration
	fits            bool                   // Options sets no windows
	longest         atomic.Int64           // the longest lease of the server, in nanoseconds; 0 = not known
	idPrefix        atomic.Pointer[string] // nil = not known yet
	infoDenied      atomic.Bool            // the server refuses INFO, which is logged
	log             *slog.Logger
	hook            func(context.Context, Event)
	outage          outage

	contenders    *contenders
	waits         *waits
	subscriptions *subscriptions
}

// New returns a Client that sends its requests with rdb. It does not connect. The caller closes rdb
// after the Client. The error names the option that is not valid.
//
// rdb must have the option ContextTimeoutEnabled. Otherwise go-redis' own timeouts and retries could
// make a renewal take longer than a lease. Give the Client a go-redis client of its own: in a shared
// pool, blocking commands of other code (BLPOP, XREAD BLOCK) can take all connections. Then a leader
// cannot renew in time and loses its mutex. To hear of grants, the Client opens a connection with the
// Options of rdb, without its hooks.
func New(rdb *redis.Client, o Options) (*Client, error) {
	switch {
	case rdb == nil:
		return nil, errors.New("rdb is nil")
	case !rdb.Options().ContextTimeoutEnabled:
		return nil, errors.New("rdb has the option ContextTimeoutEnabled off: a renewal could take longer than its lease")
	}
	if o.Timeout != 0 && o.Timeout < minTimeout {
		return nil, fmt.Errorf("Timeout is %v, less than %v", o.Timeout, minTimeout)
	}
	c := &Client{
		rdb: rdb, hook: o.Hook, contenders: newContenders(),
		timeout: cmp.Or(o.Timeout, defaultTimeout), log: cmp.Or(o.Logger, slog.Default()),
		ttl: cmp.Or(o.TTL, defaultTTL), transition: o.Transition, fits: o.TTL == 0 && o.Transition == 0,
	}
	if c.fits {
		c.transition = defaultTransition
	}
	if err := checkWindows(c.ttl, c.transition); err != nil {
		return nil, err
	}
	if len(o.IDPrefix) > maxPrefix {
		return nil, fmt.Errorf("IDPrefix has %d bytes, at most %d are allowed", len(o.IDPrefix), maxPrefix)
	}
	if o.IDPrefix != "" {
		c.idPrefix.Store(&o.IDPrefix)
	}
	c.outage.log = c.log
	c.subscriptions = newSubscriptions(c)
	c.waits = newWaits(c)
	return c, nil
}

// Close ends the work of Do, Lead and Every by its context, unlocks all Locks, and ends all waits
// and watches. It waits at most Options.Timeout for that. Later calls of the Client return
// ErrClosed. Close does not close the go-redis client.
//
// If Close returns an error, the server may keep a mutex for this Client until the lease ends. The
// error matches ErrUnavailable if the server has not confirmed a release in time, or ErrClosed if
// the go-redis client was closed before. If work has not returned, the error names its mutex.
func (c *Client) Close() error {
	empty := c.contenders.close()
	var err error
	select {
	case <-empty:
		err = c.contenders.failure
	case <-time.After(c.timeout):
		if mutex := c.contenders.working(); mutex != "" {
			err = fmt.Errorf("the work of %s has not returned", mutex)
		} else {
			err = errNoAnswer
		}
	}
	c.subscriptions.close()
	c.waits.close()
	if err != nil {
		return fmt.Errorf("close the Client: the server may keep a mutex until its lease ends: %w", err)
	}
	return nil
}

// Owner returns the owner of a mutex and does not contend for it. The zero Owner means that the
// mutex is free. The error is the error of ctx, ErrUnavailable, ErrClosed, or the server's error
// reply.
func (c *Client) Owner(ctx context.Context, mutex string) (Owner, error) {
	if err := c.callable(ctx); err != nil {
		return Owner{}, err
	}
	return c.owner(ctx, mutex)
}

// Check reports whether the tenure with this fencing token still lasts. A resource calls Check
// before it acts for a client that claims to be the owner. The tenure may end between the reply and
// the action. A resource that can store a number needs no Check: it keeps the largest token that it
// has received, and refuses smaller ones. Check returns the same errors as Owner.
func (c *Client) Check(ctx context.Context, mutex string, token uint64) (holds bool, err error) {
	if token == 0 || token > math.MaxInt64 { // no tenure has such a token
		return false, nil
	}
	if err := c.callable(ctx); err != nil {
		return false, err
	}
	return c.check(ctx, c.timeout, mutex, token)
}

// callable returns why a call with ctx fails at once; nil = it does not.
func (c *Client) callable(ctx context.Context) error {
	if ctx == nil {
		return errors.New("ctx is nil")
	}
	select {
	case <-c.contenders.closing:
		return errClientClosed
	default:
		return ctx.Err()
	}
}

// sleep waits for d, or until something is in wake, or ctx or the Client ends.
func (c *Client) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
	case <-wake:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.contenders.closing:
		return errClientClosed
	}
	return nil
}

// poke puts an element into a channel that has room for one.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
