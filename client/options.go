package client

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client/internal/names"
)

// Option is an option of one call of Do, TryDo, Lock, TryLock, Lead and Every. A nil Option has no
// effect.
type Option func(*terms)

// WithTTL sets the TTL of the lease, 1 ms to 24 h; 0 means that of the Client. The transition window
// stays that of the Client, see [WithTransition]. Until the end of the work, the Client renews the
// lease whenever a third of the TTL has passed. If the process dies, the mutex stays locked for the
// rest of the TTL and transition windows.
func WithTTL(ttl time.Duration) Option {
	return func(t *terms) {
		if ttl != 0 {
			t.ttl, t.fits = ttl, false
		}
	}
}

// WithTransition sets the transition window of the lease, 0 to 24 h. It follows the TTL window. The
// owner still owns the mutex in it, and may renew.
func WithTransition(d time.Duration) Option {
	return func(t *terms) { t.transition, t.fits = d, false }
}

// WithoutRenewal makes the lease end after its windows. Only [Lock.Renew] renews it.
func WithoutRenewal() Option { return func(t *terms) { t.manual = true } }

// WithID sets the contender's id, 1 to 128 bytes; "" means a new one, see [Options]. Two contenders
// of a mutex must not have the same id at the same time, since the server treats them as one. A
// Client refuses the second one with ErrInUse, but it cannot know those of other processes.
func WithID(id string) Option { return func(t *terms) { t.id, t.named = id, id != "" } }

// terms are what a contender asks for.
type terms struct {
	mutex, id       string
	named           bool // the caller has chosen the id, and may use it again
	ttl, transition time.Duration
	fits            bool // the windows are defaults, which fit may shorten
	manual          bool
}

// terms returns the terms of a call. The error names the option that is not valid.
func (c *Client) terms(mutex string, options []Option) (*terms, error) {
	t := &terms{mutex: mutex, ttl: c.ttl, transition: c.transition, fits: c.fits}
	for _, set := range options {
		if set != nil {
			set(t)
		}
	}
	if longest := c.longest.Load(); longest != 0 {
		t.fit(time.Duration(longest))
	}
	return t, checkWindows(t.ttl, t.transition)
}

func checkWindows(ttl, transition time.Duration) error {
	if err := names.CheckMillis("TTL", ttl, names.MinTTL, names.MaxTTL); err != nil {
		return err
	}
	return names.CheckMillis("Transition", transition, 0, names.MaxTransition)
}

func (t *terms) lease() time.Duration { return t.ttl + t.transition }

// fit shortens default windows so that the lease is at most longest. It returns false if windows
// that the program has set are too long.
func (t *terms) fit(longest time.Duration) bool {
	switch {
	case t.lease() <= longest:
		return true
	case !t.fits || longest < 2*time.Millisecond:
		return false
	}
	t.ttl = time.Duration(float64(longest) * t.ttl.Seconds() / t.lease().Seconds()).Truncate(time.Millisecond)
	t.transition = longest.Truncate(time.Millisecond) - t.ttl
	return true
}

// prefix returns what the ids of this Client begin with. Unless Options sets it, it is the name of
// the user with a colon, which is what the server demands of every user but the default one. The
// Client asks the server for this name once.
func (c *Client) prefix(ctx context.Context) (string, error) {
	if known := c.idPrefix.Load(); known != nil {
		return *known, nil
	}
	cmd := redis.NewCmd(ctx, "acl", "whoami")
	err := c.ask(ctx, c.timeout, true, cmd)
	name, _ := cmd.Val().(string)
	switch {
	case err != nil && redis.HasErrorPrefix(err, "NOPERM"): // the user may not ask
		name = c.rdb.Options().Username
	case err != nil:
		return "", err
	}
	if name += ":"; name == "default:" || name == ":" {
		name = ""
	}
	c.idPrefix.CompareAndSwap(nil, &name)
	return name, nil
}
