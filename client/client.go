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
)

// NoTransition as a Transition means a lease without a transition window.
const NoTransition time.Duration = -1

const (
	defaultTimeout    = 3 * time.Second
	defaultTTL        = 10 * time.Second
	defaultTransition = 2 * time.Second
	// minTimeout is less than any network takes.
	minTimeout = time.Millisecond
)

// Options of a Client. The zero value is ready to use.
type Options struct {
	// Timeout bounds the time that a request may take, and that of giving up what one has: 1 ms at
	// least, 0 means 3 s. The go-redis client obeys it only with its ContextTimeoutEnabled.
	// Without, its own timeouts and retries hold its connections longer, and the request goes on in
	// the background.
	Timeout time.Duration

	// TTL and Transition are the windows of all leases that do not set their own: 0 means 10 s and
	// 2 s, NoTransition no transition. See ContenderConfig.
	TTL, Transition time.Duration

	// Logger is told of outages, refusals, lost mutexes, overdue callbacks, and panics of scheduled
	// work. nil means slog.Default(); slog.DiscardHandler makes one that keeps silent. Its handler
	// must not wait for anything of the Client.
	Logger *slog.Logger
}

// Client is what contenders share: the go-redis client and a subscriber's connection. Safe for
// concurrent use.
type Client struct {
	rdb             redis.UniversalClient
	timeout         time.Duration
	ttl, transition time.Duration // as in Options, with the defaults
	log             *slog.Logger
	radio           *radio
	roster          *roster
	outage          outage
	vigil           vigil
}

// New returns a Client that makes its requests with rdb, which stays the caller's. It does not
// connect. The error names the option that is wrong.
//
// Give the Client a go-redis client of its own. Blocking commands of others (BLPOP, XREAD BLOCK)
// take connections from the same pool, and a leader that cannot renew in time loses its mutex. Set
// its ContextTimeoutEnabled. A redis.Ring is refused: it does not pass on notices.
func New(rdb redis.UniversalClient, o Options) (*Client, error) {
	if err := checkRedis(rdb); err != nil {
		return nil, err
	}
	if o.Timeout != 0 && o.Timeout < minTimeout {
		return nil, fmt.Errorf("Timeout is %v, less than %v", o.Timeout, minTimeout)
	}
	c := &Client{
		rdb: rdb, timeout: o.Timeout, log: o.Logger, radio: newRadio(rdb), roster: newRoster(),
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
		c.log.Warn("go-redis has ContextTimeoutEnabled off: its own timeouts and retries keep requests longer than Timeout",
			"timeout", c.timeout)
	}
	return c, nil
}

// checkRedis returns why a Client cannot work with rdb.
func checkRedis(rdb redis.UniversalClient) error {
	switch v := reflect.ValueOf(rdb); {
	case rdb == nil:
		return errors.New("rdb is nil")
	case v.Kind() == reflect.Pointer && v.IsNil():
		return fmt.Errorf("rdb is a nil %T", rdb)
	}
	switch rdb.(type) {
	case *redis.Ring, *redis.ClusterClient:
		return fmt.Errorf("rdb is a %T, and a simba-resp server is no part of a ring or cluster: connect with redis.NewClient", rdb)
	}
	return nil
}

// contextTimeouts reports whether requests end with their contexts, as far as that is known.
func contextTimeouts(rdb redis.UniversalClient) bool {
	r, ok := rdb.(*redis.Client)
	return !ok || r.Options().ContextTimeoutEnabled
}

// Close stops all that runs by the Client, as Stop and Unlock do, waits for that as long as a
// request may take, and ends the subscriber's connection. Later calls return ErrClosed. The
// go-redis client is not closed. The error says that something may be left at the server until its
// lease is over: ErrUnavailable also if a callback or the work of Do has not returned, ErrClosed if
// the go-redis client was closed before.
func (c *Client) Close() error {
	over := c.roster.close()
	t := time.NewTimer(c.timeout)
	defer t.Stop()
	var err error
	select {
	case <-over:
		err = c.roster.left()
	case <-t.C:
		select {
		case <-over:
			err = c.roster.left()
		default:
			err = errUnanswered
		}
	}
	c.radio.close()
	if err != nil {
		return fmt.Errorf("close: something may be left at the server: %w", err)
	}
	return nil
}

// Owner returns the owner of a mutex and does not contend for it. The zero Owner means nobody. The error is
// that of ctx, ErrUnavailable, ErrClosed, or what the server says.
func (c *Client) Owner(ctx context.Context, mutex string) (owner Owner, err error) {
	err = c.question(ctx, mutex, func(ctx context.Context) (err error) {
		owner, err = c.owner(ctx, mutex)
		return err
	})
	return owner, err
}

// Check reports whether the tenure with that fencing token still owns the mutex. A resource asks
// this before it acts for a client that claims to be the owner. The tenure may end between the
// answer and what the resource does next. A resource that can store a number needs no question: it
// keeps the largest token that it has seen, and refuses a smaller one. The errors are those of
// Owner.
func (c *Client) Check(ctx context.Context, mutex string, token uint64) (holds bool, err error) {
	if token == 0 || token > math.MaxInt64 { // nobody's
		return false, checkMutex(mutex)
	}
	err = c.question(ctx, mutex, func(ctx context.Context) (err error) {
		holds, err = c.check(ctx, mutex, token)
		return err
	})
	return holds, err
}

// question asks something that changes nothing.
func (c *Client) question(ctx context.Context, mutex string, ask func(context.Context) error) error {
	if err := checkMutex(mutex); err != nil {
		return err
	}
	if c.roster.isClosed() {
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
		<-ctx.Done() // a connection's timer was faster than that of ctx
		return ctx.Err()
	}
	return err
}

// windows returns the windows of a lease. The Client's defaults replace zeros.
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

// terms are those of a contender.
type terms struct {
	mutex, id       string
	ttl, transition time.Duration
}

// terms returns those of a contender as it was configured. The error names the field that is wrong.
func (c *Client) terms(mutex, id string, ttl, transition time.Duration) (terms, error) {
	if id == "" {
		id = defaultID()
	}
	ttl, transition = c.windows(ttl, transition)
	t := terms{mutex, id, ttl, transition}
	if err := checkMutex(t.mutex); err != nil {
		return terms{}, err
	}
	if err := checkContender(t.id); err != nil {
		return terms{}, err
	}
	return t, checkWindows(t.ttl, t.transition)
}

func checkWindows(ttl, transition time.Duration) error {
	if err := checkMillis("TTL", ttl, minTTL, maxTTL); err != nil {
		return err
	}
	return checkMillis("Transition", transition, 0, maxTransition)
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
