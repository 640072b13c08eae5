package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// fill writes until Redis has no memory left. Then it lowers the limit a little. Otherwise Redis
// could accept writes again after a connection has closed and freed its memory.
func fill(t *testing.T, c *redis.Client) {
	t.Helper()
	const limit = 8 << 20
	set := func(bytes int) {
		t.Helper()
		must(t, c.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(bytes)).Err())
	}
	set(limit)
	big := strings.Repeat("x", 10000)
	for i := 0; ; i++ {
		err := c.Set(t.Context(), "filler:"+strconv.Itoa(i), big, 0).Err()
		if err != nil && strings.HasPrefix(err.Error(), "OOM ") {
			break
		}
		if err != nil || i > 10000 {
			t.Fatalf("Redis is not full after %d writes: %v", i, err)
		}
	}
	set(limit - 200_000)
}

// refusedForMemory fails the test unless the error says that Redis is full.
func refusedForMemory(t *testing.T, what string, err error) {
	t.Helper()
	lost := (*simba.UnavailableError)(nil)
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("%s on a full Redis: %v; want an UnavailableError with OOM", what, err)
	}
}

func TestFullRedisKeepsLeasesAndAcceptsNoNewContender(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	url := "redis://" + s.Addr
	b := serve(t, url, noNotices{})
	other := serve(t, url, noNotices{})
	b.SetQueueGrace(time.Minute)
	b.SetHandoffWindow(0)

	// These mutexes exist before the memory is full.
	tokens := make(map[string]uint64)
	hold := func(mutex string, ttl time.Duration, session uint64) {
		o, _, err := b.Acquire(t.Context(), simba.AcquireRequest{Mutex: mutex, Contender: "a", TTL: ttl, Session: session})
		if err != nil || o.Status != simba.StatusAcquired {
			t.Fatalf("ACQUIRE of %s by a: %+v %v; want acquired", mutex, o, err)
		}
		tokens[mutex] = o.Token
	}
	renewed := []string{"plain", "session", "contended", "handed", "foreign", "unmarked"}
	for _, m := range []string{"plain", "unmarked", "contended", "release", "break", "on", "queue", "poll", "handed"} {
		hold(m, time.Minute, 0)
	}
	hold("session", time.Minute, 7)
	_, _, err := b.Acquire(t.Context(), simba.AcquireRequest{Mutex: "lapsed", Contender: "a", TTL: 50 * time.Millisecond})
	_ = unavailable(t, err) // the call may fail if the lease expired before the reply
	hold("free", time.Minute, 0)
	release(t, b, "free", "a")
	acquire(t, b, "contended", "w", time.Minute, nil)
	acquire(t, b, "poll", "w", time.Minute, nil)
	w, ticket := waits(t, other, "on", "w")
	h, handed := waits(t, b, "handed", "b")
	release(t, b, "handed", "a")
	tokens["handed"] = granted(t, h, handed).Token
	for _, m := range []string{"foreign", "unseen", "unbroken"} {
		newSimbaContender(t, s.Addr, seeds.Simba31, m, "a").mustAcquire()
	}
	until(t, "a lease has expired, and is recorded as such", func() bool {
		last, _ := b.Events.Last("lapsed")
		return last.Kind == simba.EventExpired
	})
	// Simba before 3.3 knows no tokens and renews only the lock, so the token can expire before it.
	must(t, c.Del(t.Context(), "simba:{unmarked}:token").Err())
	fill(t, c)

	// An owner keeps its lease.
	for _, m := range renewed {
		who := "a"
		if m == "handed" {
			who = "b"
		}
		const ttl = 10 * time.Minute
		guard := func(token uint64) func() (simba.Outcome, error) {
			return func() (simba.Outcome, error) {
				return b.Guard(t.Context(), simba.GuardRequest{Mutex: m, Contender: who, TTL: ttl, Token: token})
			}
		}
		ask := func(b *Backend, r simba.AcquireRequest) func() (simba.Outcome, error) {
			return func() (simba.Outcome, error) {
				r.Mutex, r.Contender, r.TTL = m, who, ttl
				o, _, err := b.Acquire(t.Context(), r)
				return o, err
			}
		}
		for what, renew := range map[string]func() (simba.Outcome, error){
			"GUARD": guard(0), "GUARD TOKEN": guard(tokens[m]),
			"ACQUIRE": ask(b, simba.AcquireRequest{}), "ACQUIRE NOQUEUE": ask(b, simba.AcquireRequest{NoQueue: true}),
			"ACQUIRE WAIT": ask(other, simba.AcquireRequest{Waiter: newWaiter()}),
		} {
			must(t, c.PExpire(t.Context(), "simba:{"+m+"}", time.Minute).Err())
			o, err := renew()
			if err != nil || o.Status != simba.StatusRenewed || tokens[m] != 0 && o.Token != tokens[m] {
				t.Errorf("%s of %s on a full Redis: %+v %v; want renewed with the same token", what, m, o, err)
			}
			for _, key := range []string{"simba:{" + m + "}", "simba:{" + m + "}:token"} {
				if left := c.PTTL(t.Context(), key).Val(); left < ttl-20*time.Second {
					t.Errorf("after %s of %s the key %s expires in %v, want about %v", what, m, key, left, ttl)
				}
			}
			tokens[m] = o.Token
		}
	}

	// No new contender is accepted, and the attempt leaves nothing.
	keys := c.DBSize(t.Context()).Val()
	for _, waiter := range []simba.Waiter{nil, newWaiter()} {
		for _, m := range []string{"never", "free", "lapsed", "queue", "poll"} {
			_, _, err := b.Acquire(t.Context(), simba.AcquireRequest{Mutex: m, Contender: "n", TTL: time.Minute, Waiter: waiter})
			what := fmt.Sprintf("ACQUIRE of %s with the waiter %v", m, waiter)
			refusedForMemory(t, what, err)
			if holder := c.Get(t.Context(), "simba:{"+m+"}").Val(); holder == "n" {
				t.Errorf("%s was refused, but the mutex was granted", what)
			}
			if c.ZScore(t.Context(), "simba:{"+m+"}:contender", "n").Err() == nil {
				t.Errorf("%s was refused, but the contender was queued", what)
			}
		}
	}
	_, _, err = b.Owner(t.Context(), "unseen")
	refusedForMemory(t, "OWNER of a tenure without a record", err)
	if got := c.DBSize(t.Context()).Val(); got != keys {
		t.Errorf("the refused requests changed the number of keys from %d to %d", keys, got)
	}

	// Reads are answered, queue entries are kept, and tenures end.
	for name, read := range readRequests {
		if strings.HasPrefix(name, "ACQUIRE") || strings.HasPrefix(name, "GUARD") {
			continue
		}
		if _, err := read(context.Background(), b, 1, 2); err != nil {
			t.Errorf("%s on a full Redis: %v; want no error", name, err)
		}
	}
	if ok, _, err := b.Check(t.Context(), "plain", tokens["plain"]); !ok || err != nil {
		t.Errorf("CHECK of plain's token on a full Redis: %v %v; want true", ok, err)
	}
	if o, _, err := b.Acquire(t.Context(), simba.AcquireRequest{Mutex: "poll", Contender: "w", TTL: time.Minute}); err != nil || o.Status != simba.StatusQueued || o.Position != 1 {
		t.Errorf("ACQUIRE of the polling waiter: %+v %v; want queued at position 1", o, err)
	}
	if !release(t, b, "release", "a") || owner(t, b, "release").Owner != "" {
		t.Error("RELEASE on a full Redis did not free the mutex")
	}
	for _, m := range []string{"break", "unbroken"} {
		if done, _, err := b.Break(t.Context(), m, ""); !done || err != nil {
			t.Errorf("BREAK of %s on a full Redis: %v %v; want true", m, done, err)
		}
	}
	release(t, b, "on", "a")
	granted(t, w, ticket)

	must(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
	wants(t, simba.StatusAcquired, b, "never", "n")
	if o := owner(t, b, "unseen"); o.Owner != "a" || o.Token == 0 {
		t.Errorf("OWNER after Redis has memory again: %+v; want a with a token", o)
	}
}

func TestFullRedisTakesNoOtherArgumentForTheContender(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	for _, who := range []string{"0", "1", "10"} { // scripts get these as other arguments
		newSimbaContender(t, s.Addr, seeds.Simba31, "m"+who, who).mustAcquire()
	}
	fill(t, c)
	for _, m := range []string{"m0", "m1", "m10"} {
		_, _, err := b.Owner(t.Context(), m)
		refusedForMemory(t, "OWNER of "+m, err)
		_, err = b.runReconcile(t.Context(), m, "", nil)
		refusedForMemory(t, "reconciling "+m, err)
		_, _, err = b.Queue(t.Context(), m, 10)
		refusedForMemory(t, "QUEUE of "+m, err)
	}
}
