package dropin

import (
	"context"
	"fmt"
	"strconv"
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
	rdb       *redis.Client
	gen       seeds.Generation
	mutex, id string
	lease     int64 // both windows, in milliseconds

	sub     *redis.PubSub // nil = not subscribed
	notices <-chan *redis.Message
	last    uint64 // the token of its last tenure; 0 = its scripts return none
}

func newJVM(t testing.TB, addr string, gen seeds.Generation, mutex, id string) *jvm {
	t.Helper()
	k := &jvm{rdb: connectTo(t, addr), gen: gen, mutex: mutex, id: id, lease: lease}
	t.Cleanup(k.unsubscribe)
	return k
}

// subscribe subscribes to the contender's channels, unless it has done so.
func (k *jvm) subscribe(ctx context.Context) error {
	if k.sub != nil {
		return nil
	}
	channels := k.gen.Channels(k.mutex, k.id)
	k.sub = k.rdb.Subscribe(ctx, channels...)
	for range channels {
		if _, err := k.sub.Receive(ctx); err != nil {
			return err
		}
	}
	k.notices = k.sub.Channel(redis.WithChannelSize(100_000))
	return nil
}

func (k *jvm) unsubscribe() {
	if k.sub != nil {
		k.sub.Close()
		k.sub = nil
	}
}

// state runs the acquire or guard script, which returns the owner, the remaining time of its lease,
// and its token.
func (k *jvm) state(ctx context.Context, s seeds.Script) (owner string, left time.Duration, token uint64, err error) {
	reply := k.rdb.Eval(ctx, s.Source, s.Keys(k.mutex), k.id, k.lease)
	if k.gen.Queues {
		text, err := reply.Text()
		if err != nil {
			return "", 0, 0, err
		}
		owner, rest, _ := strings.Cut(text, "@@")
		if rest == "" {
			return owner, 0, 0, nil
		}
		ms, err := strconv.ParseInt(rest, 10, 64)
		return owner, time.Duration(ms) * time.Millisecond, 0, err
	}
	all, err := reply.Slice()
	if err != nil {
		return "", 0, 0, err
	}
	if len(all) != 3 {
		return "", 0, 0, fmt.Errorf("the script returns %v, want 3 values", all)
	}
	owner, _ = all[0].(string)
	ms, _ := all[1].(int64)
	n, _ := all[2].(int64)
	return owner, time.Duration(ms) * time.Millisecond, uint64(n), nil
}

func (k *jvm) try(ctx context.Context) (owner string, left time.Duration, err error) {
	owner, left, token, err := k.state(ctx, k.gen.Acquire)
	if err == nil && owner == k.id {
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
		if err != nil || owner == k.id {
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
			return fmt.Errorf("%s of Simba %s got no notice: %w", k.id, k.gen.Name, ctx.Err())
		}
	}
}

func (k *jvm) guard(ctx context.Context) error {
	owner, _, token, err := k.state(ctx, k.gen.Guard)
	if err == nil && (owner != k.id || token != k.last) {
		err = fmt.Errorf("%s cannot renew its tenure with token %d: the script returns the owner %q with token %d", k.id, k.last, owner, token)
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
	n, err := k.rdb.Eval(ctx, k.gen.Release.Source, k.gen.Release.Keys(k.mutex), k.id).Int()
	if err == nil && n != 1 {
		err = fmt.Errorf("%s has lost its lease", k.id)
	}
	return err
}
