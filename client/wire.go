package client

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ask sends a request and waits for the reply, at most for timeout. The error is that of ctx if ctx
// has ended. If again is set, go-redis may repeat the request.
func (c *Client) ask(ctx context.Context, timeout time.Duration, again bool, cmd redis.Cmder) error {
	if !again {
		cmd = once{cmd}
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := c.rdb.Process(limited, cmd)
	if end, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(end) {
		<-ctx.Done() // the deadline of the connection is a little earlier
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return requestError(err)
}

// askRecord asks with a command that replies with a record of a tenure.
func (c *Client) askRecord(ctx context.Context, timeout time.Duration, again bool, args ...any) (reply, error) {
	cmd := redis.NewMapStringInterfaceCmd(ctx, args...)
	if err := c.ask(ctx, timeout, again, cmd); err != nil {
		return reply{}, err
	}
	return readReply(cmd.Val())
}

// once is a command that go-redis does not repeat. The reply to a repeated RELEASE would say that
// there was nothing to release, although the first RELEASE has released the mutex. A repeated NEXT
// would return other outcomes, and the server refuses a number of a request that it knows.
type once struct{ redis.Cmder }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// acquire sends SIMBA.ACQUIRE, which also renews the lease if the contender owns the mutex. With a
// via the contender waits, and SIMBA.NEXT brings the outcome.
func (c *Client) acquire(ctx context.Context, t *terms, noQueue bool, v via) (reply, error) {
	args := make([]any, 0, 12)
	args = append(args, "simba.acquire", t.mutex, t.id, t.ttl.Milliseconds())
	if t.transition != 0 {
		args = append(args, "transition", t.transition.Milliseconds())
	}
	switch {
	case noQueue:
		args = append(args, "noqueue")
	case v.n != 0:
		args = append(args, "wait", 0, "via", v.waiter, "request", v.n)
	}
	return c.askRecord(ctx, c.timeout, v.n == 0, args...)
}

// guard sends SIMBA.GUARD, which renews the lease if the tenure has the given token.
func (c *Client) guard(ctx context.Context, timeout time.Duration, t *terms, token uint64) (reply, error) {
	return c.askRecord(ctx, timeout, true, "simba.guard", t.mutex, t.id, t.ttl.Milliseconds(),
		"transition", t.transition.Milliseconds(), "token", token)
}

// release sends SIMBA.RELEASE, which ends the tenure with the given token, or what the given request
// has brought. With neither it ends any tenure of the contender, and removes its queue entry. If again
// is set, go-redis may repeat it: each repetition takes another connection of the pool, where several
// may be dead. Then released may be false though the first one has released the mutex.
func (c *Client) release(ctx context.Context, t *terms, token uint64, v via, again bool) (released bool, err error) {
	args := []any{"simba.release", t.mutex, t.id}
	switch {
	case token != 0:
		args = append(args, "token", token)
	case v.n != 0:
		args = append(args, "via", v.waiter, "request", v.n)
	}
	cmd := redis.NewCmd(ctx, args...)
	err = c.ask(ctx, c.timeout, again, cmd)
	return cmd.Val() == int64(1), err
}

func (c *Client) check(ctx context.Context, timeout time.Duration, mutex string, token uint64) (holds bool, err error) {
	cmd := redis.NewCmd(ctx, "simba.check", mutex, token)
	err = c.ask(ctx, timeout, true, cmd)
	return cmd.Val() == int64(1), err
}

func (c *Client) owner(ctx context.Context, mutex string) (Owner, error) {
	cmd := redis.NewMapStringInterfaceCmd(ctx, "simba.owner", mutex)
	switch err := c.ask(ctx, c.timeout, true, cmd); {
	case errors.Is(err, redis.Nil):
		return Owner{}, nil
	case err != nil:
		return Owner{}, err
	}
	r := record{values: cmd.Val()}
	return ownerOf(r.tenure(), time.Now()), r.fault
}

// The statuses of a reply.
const (
	statusAcquired = "acquired" // a new tenure
	statusRenewed  = "renewed"  // already the owner: the lease is extended, the token is the same
	statusQueued   = "queued"   // not acquired; the contender has a queue entry
	statusBusy     = "busy"     // not acquired; no queue entry, because NOQUEUE was sent
	statusLost     = "lost"     // the sender of GUARD is not the owner
	statusTimeout  = "timeout"  // the wait ended without a grant, and without a queue entry
)

// reply is the server's reply to ACQUIRE and GUARD, or an outcome of NEXT.
type reply struct {
	request         uint64 // SIMBA.NEXT will have the outcome; 0 = it will not
	status          string
	owner           string        // "" = the mutex is free
	token           uint64        // 0 = the mutex is free
	ttl, transition time.Duration // the times until the ends of the owner's windows
}

func readReply(values map[string]any) (reply, error) {
	r := record{values: values}
	out := r.tenure()
	out.status = r.text("status")
	n, _ := values["request"].(int64) // else it is null or missing
	out.request = uint64(n)
	switch out.status {
	case statusAcquired, statusRenewed, statusQueued, statusBusy, statusLost, statusTimeout:
	default:
		if r.fault == nil {
			r.fault = fmt.Errorf("the server replies with the status %q, which this client does not know", out.status)
		}
	}
	return out, r.fault
}

// record is a record that the server has sent.
type record struct {
	values map[string]any
	fault  error // the first reason why the record is not valid; nil = none
}

func (r *record) text(name string) string  { return field[string](r, name) }
func (r *record) number(name string) int64 { return field[int64](r, name) }
func (r *record) millis(name string) time.Duration {
	return time.Duration(r.number(name)) * time.Millisecond
}

// moment returns a field that has a time in Unix milliseconds. If the field is null or missing, it
// returns the zero time.
func (r *record) moment(name string) (at time.Time) {
	if millis, ok := r.values[name].(int64); ok {
		at = time.UnixMilli(millis)
	}
	return at
}

// tenure returns the fields of an owner and its windows.
func (r *record) tenure() reply {
	return reply{
		owner: r.text("owner"), token: uint64(r.number("token")), ttl: r.millis("ttl"), transition: r.millis("transition"),
	}
}

func field[T any](r *record, name string) T {
	value, ok := r.values[name].(T)
	if !ok && r.fault == nil {
		r.fault = fmt.Errorf("the field %s of the server's reply is missing or has the wrong type %T: not a simba-resp server?", name, r.values[name])
	}
	return value
}

// misconfigured reports whether err says that the server's store is misconfigured: the store
// refuses the server's operations until an operator changes the store. The server may have done a
// part of the request.
func misconfigured(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && misconfiguredText.MatchString(reply.Error())
}

var misconfiguredText = regexp.MustCompile(`^ERR engine [^ ]* misconfigured: `)

// transient are the beginnings of error replies after which a retry may succeed.
var transient = []string{
	"TRYAGAIN", "OOM", "BUSY", "UNBLOCKED",
	"ERR max number of clients reached", "ERR max number of blocked clients reached",
}

// refused reports whether err is an error reply for which a retry is useless. Somebody must first
// change the request, the user's permissions, or the server.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !slices.ContainsFunc(transient, func(begin string) bool {
		return strings.HasPrefix(reply.Error(), begin)
	})
}
