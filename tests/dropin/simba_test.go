package dropin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
)

// jvm acts like a contender of one generation of Simba on the JVM, with the scripts and channels of
// that generation. It is subscribed only while it waits for or owns the mutex. Simba itself stays
// subscribed from start to stop.
type jvm struct {
	seeds.Contender
	rdb   *redis.Client
	lease int64 // both windows, in milliseconds

	sub     *redis.PubSub // nil = not subscribed
	notices <-chan *redis.Message
	last    uint64 // the token of its last tenure; 0 = its scripts return none
}

func newJVM(t testing.TB, addr string, gen seeds.Generation, mutex, id string) *jvm {
	t.Helper()
	rdb := connectTo(t, addr)
	k := &jvm{Contender: seeds.Contender{Client: rdb, Of: gen, Mutex: mutex, ID: id}, rdb: rdb, lease: lease}
	t.Cleanup(k.unsubscribe)
	return k
}

// subscribe subscribes to the contender's channels, unless it has done so.
func (k *jvm) subscribe(ctx context.Context) (err error) {
	if k.sub != nil {
		return nil
	}
	if k.sub, err = k.Subscribe(ctx); err == nil {
		k.notices = k.sub.Channel(redis.WithChannelSize(100_000))
	}
	return err
}

func (k *jvm) unsubscribe() {
	if k.sub != nil {
		k.sub.Close()
		k.sub = nil
	}
}

func (k *jvm) state(ctx context.Context, s seeds.Script) (owner string, left time.Duration, token uint64, err error) {
	return k.State(ctx, s, time.Duration(k.lease)*time.Millisecond)
}

func (k *jvm) try(ctx context.Context) (owner string, left time.Duration, err error) {
	owner, left, token, err := k.state(ctx, k.Of.Acquire)
	if err == nil && owner == k.ID {
		k.last = token
	}
	return owner, left, err
}

func (k *jvm) acquire(ctx context.Context) (string, error) { return k.contend(ctx, func() {}) }

// contend implements acquire. It calls waits each time before the contender begins to wait.
func (k *jvm) contend(ctx context.Context, waits func()) (string, error) {
	if err := k.subscribe(ctx); err != nil {
		return "", err
	}
	for {
		owner, left, err := k.try(ctx)
		if err != nil || owner == k.ID {
			return owner, err
		}
		waits()
		if err := k.awaitNotice(ctx, left); err != nil {
			return "", err
		}
	}
}

func (k *jvm) token() uint64 { return k.last }

// awaitNotice returns when a notice wakes the contender, or at the end of the owner's lease.
func (k *jvm) awaitNotice(ctx context.Context, left time.Duration) error {
	end := time.After(left)
	for {
		select {
		case m := <-k.notices:
			if strings.HasPrefix(m.Payload, "released@@") {
				return nil
			}
		case <-end:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%s of Simba %s got no notice: %w", k.ID, k.Of.Name, ctx.Err())
		}
	}
}

func (k *jvm) guard(ctx context.Context) error {
	owner, _, token, err := k.state(ctx, k.Of.Guard)
	if err == nil && (owner != k.ID || token != k.last) {
		err = fmt.Errorf("%s cannot renew its tenure with token %d: the script returns the owner %q with token %d", k.ID, k.last, owner, token)
	}
	return err
}

func (k *jvm) release(ctx context.Context) error {
	if err := k.guard(ctx); err != nil {
		return err
	}
	return k.end(ctx)
}

// end releases the mutex without a renewal.
func (k *jvm) end(ctx context.Context) error {
	k.unsubscribe()
	n, err := k.Send(ctx, k.rdb, k.Of.Release).Int()
	if err == nil && n != 1 {
		err = fmt.Errorf("%s has lost its lease", k.ID)
	}
	return err
}
