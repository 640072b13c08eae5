package redis

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/need"
)

// simbaContender is a contender of one generation of Simba, a lock library for the JVM. It receives
// messages only after a call of subscribe.
type simbaContender struct {
	seeds.Contender
	t      testing.TB
	pubsub *redis.PubSub
}

func newSimbaContender(t testing.TB, addr string, of seeds.Generation, mutex, id string) *simbaContender {
	t.Helper()
	return newSimbaContenderAt(t, &redis.UniversalOptions{Addrs: []string{addr}}, of, mutex, id)
}

func newSimbaContenderAt(t testing.TB, at *redis.UniversalOptions, of seeds.Generation, mutex, id string) *simbaContender {
	t.Helper()
	c := redis.NewUniversalClient(at)
	t.Cleanup(func() { _ = c.Close() })
	return &simbaContender{Contender: seeds.Contender{Client: c, Of: of, Mutex: mutex, ID: id}, t: t}
}

func (r *simbaContender) send(p redis.Pipeliner, s seeds.Script, args ...any) {
	r.Send(context.Background(), p, s, args...)
}

// acquire runs the acquire script. It returns the owner and its token, 0 if the generation has no
// tokens.
func (r *simbaContender) acquire(lease time.Duration) (owner string, token uint64) {
	r.t.Helper()
	owner, _, token, err := r.State(context.Background(), r.Of.Acquire, lease)
	must(r.t, err)
	return owner, token
}

func (r *simbaContender) mustAcquire() (token uint64) {
	r.t.Helper()
	owner, token := r.acquire(time.Minute)
	if owner != r.ID {
		r.t.Fatalf("%s tried to acquire, and %s is the owner", r.ID, owner)
	}
	return token
}

// mustQueue tries to acquire a mutex that is not free.
func (r *simbaContender) mustQueue() {
	r.t.Helper()
	if owner, _ := r.acquire(time.Minute); owner == r.ID {
		r.t.Fatalf("the Simba contender %s is the owner, and should be queued", r.ID)
	}
}

func (r *simbaContender) release() {
	r.t.Helper()
	if n, err := r.Send(context.Background(), r.Client, r.Of.Release).Int(); err != nil || n != 1 {
		r.t.Fatalf("release of the Simba contender %s returns %d, %v; want 1", r.ID, n, err)
	}
}

func (r *simbaContender) subscribe() *simbaContender {
	r.t.Helper()
	sub, err := r.Subscribe(context.Background())
	must(r.t, err)
	r.t.Cleanup(func() { _ = sub.Close() })
	r.pubsub = sub
	return r
}

// receive waits for a message, and returns the payloads of earlier messages.
func (r *simbaContender) receive(payload string) (before []string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), need.Hang)
	defer cancel()
	for {
		m, err := r.pubsub.ReceiveMessage(ctx)
		if err != nil {
			r.t.Fatalf("the Simba contender %s did not receive %s, only %q: %v", r.ID, payload, before, err)
		}
		if m.Payload == payload {
			return before
		}
		before = append(before, m.Payload)
	}
}

func granted(t testing.TB, w *waiter, ticket simba.Ticket) simba.Outcome {
	t.Helper()
	w.await(t)
	o, err := ticket.End(simba.EndWoken)
	if err != nil || o.Status != simba.StatusAcquired {
		t.Fatalf("End of the waiter: %+v %v; want acquired", o, err)
	}
	return o
}

// readToken returns the token in a key, 0 if there is no key.
func readToken(t testing.TB, c *redis.Client, key string) uint64 {
	t.Helper()
	text, err := c.Get(t.Context(), key).Result()
	if err == redis.Nil {
		return 0
	}
	n, wrong := strconv.ParseUint(text, 10, 64)
	if err != nil || wrong != nil {
		t.Fatalf("key %s: %q is no token: %v", key, text, err)
	}
	return n
}

// atOnce is the limit for steps that must not wait for the end of a lease or handoff window, or for
// the next regular reconciliation. In the tests these are longer than atOnce.
const atOnce = nextReconcile - time.Second

// nextReconcile is how long no reconciliation is due after a call of awaitIdle.
const nextReconcile = reconcileInterval * 4 / 5

// within fails the test if more than atOnce has passed.
func within(t testing.TB, what string, since time.Time) {
	t.Helper()
	if took := time.Since(since); took > need.AtMost(atOnce) {
		t.Errorf("%s came after %v, want at most %v", what, took, atOnce)
	}
}
