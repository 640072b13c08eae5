package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// final is the error that Final returns.
type final struct{ err error }

func (f *final) Error() string {
	if f.err == nil {
		return "no error"
	}
	return f.err.Error()
}

func (f *final) Unwrap() error { return f.err }

// Final returns an error with which the f of Lead or Every ends Lead or Every, which then returns
// err. err may be nil. It has no meaning in Do.
func Final(err error) error { return &final{err} }

// quickTenure is the length of a tenure after which Lead contends again at once. After a shorter one
// it first pauses.
const quickTenure = time.Second

// Lead contends for a mutex until ctx ends. It runs f once for each tenure, with a context that ends
// with the tenure and with ctx; [Token] returns its fencing token. While f runs, this process is the
// leader.
//
//	err := c.Lead(ctx, "reports", func(ctx context.Context) error {
//		return serve(ctx) // until ctx ends
//	})
//
// If f returns Final(err), Lead releases the mutex and returns err. If f returns anything else, Lead
// logs the error, releases the mutex, and contends again at the end of the queue. If f returns within
// a second, Lead first pauses, each time longer, up to the TTL. When the mutex is lost, the context
// of f ends with the cause ErrLost. Lead waits until f has returned, and contends again. Then it is
// no failure that f returns the error of its context, or its cause. If f panics, Lead releases the
// mutex, and the panic passes on.
//
// When ctx ends, Lead waits for f, and for the reply to the release at most for Options.Timeout, and
// returns an error that matches that of ctx. It returns ErrClosed when the Client or the go-redis
// client is closed. If the server refuses a request before the first tenure, Lead returns the
// server's error reply. After the first tenure it logs a refusal, and tries again.
func (c *Client) Lead(ctx context.Context, mutex string, f func(context.Context) error, o ...Option) error {
	if f == nil {
		return fmt.Errorf("lead %s: f is nil", mutex)
	}
	return c.lead(ctx, mutex, o, func(l *lease) error { return l.once(f) })
}

// lead contends, calls work for each lease, and releases the mutex after that.
func (c *Client) lead(ctx context.Context, mutex string, o []Option, work func(*lease) error) error {
	t, of, err := c.enter(ctx, mutex, false, o)
	if err != nil {
		return fmt.Errorf("lead %s: %w", mutex, err)
	}
	var l *lease // nil = none, or it is released
	defer func() {
		if l != nil { // even if work panics
			_ = l.free() // has logged it
		}
	}()
	var last uint64 // the token of the last tenure
	for pause := time.Duration(0); ; {
		a := &attempt{c: c, terms: t, of: of, lastOver: last}
		if l, err = a.run(ctx); err != nil {
			select {
			case <-a.giveUp(ctx):
			case <-time.After(c.timeout):
			}
			return fmt.Errorf("lead %s: %w", mutex, err)
		}
		err = work(l)
		var end *final
		switch {
		case errors.As(err, &end):
			return end.err
		case ctx.Err() != nil:
			return fmt.Errorf("lead %s: %w", mutex, ctx.Err())
		case err != nil && (l.cause() == nil || !isContextError(err) && !errors.Is(err, l.cause())):
			c.log.Error("the leader's work failed", "mutex", mutex, "contender", t.id, "err", err)
		}
		over := l
		l, last = nil, over.token
		_ = over.free() // has logged it
		select {
		case <-over.gone: // at the latest when the lease ends
			pause = max(retryPause, min(2*pause, t.ttl))
			if now().since(over.began) >= quickTenure {
				pause = 0
			}
			err = c.sleep(ctx, pause, nil)
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.contenders.closing:
			err = errClientClosed
		}
		for err == nil {
			if of, err = c.contenders.add(t); !errors.Is(err, ErrInUse) { // else wait for the other one
				break
			}
			err = c.sleep(ctx, retryPause, nil)
		}
		if err != nil {
			return fmt.Errorf("lead %s: %w", mutex, err)
		}
	}
}
