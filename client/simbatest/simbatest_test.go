package simbatest_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
	"github.com/simba-resp/simba-resp/client/simbatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newClient returns a Client, and closes it when the test ends.
func newClient(t *testing.T, rdb *redis.Client) *client.Client {
	t.Helper()
	c, err := client.New(rdb, client.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the Client: %v", err)
		}
	})
	return c
}

// leader is a process that contends for leadership. leads is true while it is the leader.
type leader struct {
	*contend.Contender
	leads atomic.Bool
}

func newLeader(t *testing.T, c *client.Client, id string) *leader {
	t.Helper()
	l := new(leader)
	k, err := contend.New(c, "leader", 0, func(context.Context) { l.leads.Store(true) }, func() { l.leads.Store(false) }, client.WithID(id))
	must(t, err)
	must(t, k.Start())
	l.Contender = k
	return l
}

// A leader election, as a user would test it.
func TestNextLeaderLeadsWhenTheFirstStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, simbatest.Start(t))
		a := newLeader(t, c, "a")
		synctest.Wait()
		b := newLeader(t, c, "b")
		time.Sleep(24 * time.Hour) // a renews
		if !a.leads.Load() || b.leads.Load() {
			t.Fatalf("a leads: %v, b leads: %v, want only a", a.leads.Load(), b.leads.Load())
		}
		stopped := time.Now()
		must(t, a.Stop(t.Context()))
		synctest.Wait()
		if a.leads.Load() || !b.leads.Load() {
			t.Errorf("after a.Stop, a leads: %v, b leads: %v, want only b", a.leads.Load(), b.leads.Load())
		}
		if took := time.Since(stopped); took != 0 {
			t.Errorf("b leads %v after a has stopped, want at once", took)
		}
	})
}

func TestLeaseOfADeadProcessExpiresInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := simbatest.Start(t)
		c := newClient(t, rdb)
		const lease = time.Hour
		must(t, rdb.Do(t.Context(), "SIMBA.ACQUIRE", "report", "dead", lease.Milliseconds()).Err())
		began := time.Now()
		l, err := c.Lock(t.Context(), "report") // blocks until the lease has expired
		must(t, err)
		if waited := time.Since(began); waited < lease || waited > lease+10*time.Minute || l.Token() != 2 {
			t.Errorf("Lock returned after %v with token %d, want %v and token 2", waited, l.Token(), lease)
		}
		must(t, l.Unlock(t.Context()))
	})
}

func TestServersOfOneBubbleAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			l, err := newClient(t, simbatest.Start(t)).TryLock(t.Context(), "report")
			must(t, err)
			if l.Token() != 1 {
				t.Errorf("the first token is %d, want 1", l.Token())
			}
		}
	})
}

// The client reads no reply before it has sent its whole pipeline, so the server must buffer the
// replies.
func TestLongPipelineDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := simbatest.Start(t)
		began := time.Now()
		const n = 5000
		long := strings.Repeat("x", 1000)
		replies, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range n {
				p.Echo(context.Background(), long)
			}
			return nil
		})
		must(t, err)
		for _, r := range replies {
			if r.(*redis.StringCmd).Val() != long {
				t.Fatalf("ECHO of %d bytes returns %v, want the same bytes", len(long), r)
			}
		}
		if took := time.Since(began); len(replies) != n || took != 0 {
			t.Errorf("%d replies after %v, want %d at once", len(replies), took, n)
		}
	})
}

func TestStartWorksInRealTimeOutsideABubble(t *testing.T) {
	c := newClient(t, simbatest.Start(t))
	must(t, c.Do(t.Context(), "report", func(ctx context.Context) error { return ctx.Err() }))
}

// Other lock libraries send commands such as SET NX.
func TestRedisLockCommandsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := simbatest.Start(t)
		set := func() bool {
			ok, err := rdb.SetNX(t.Context(), "lock", "me", time.Hour).Result()
			must(t, err)
			return ok
		}
		if !set() || set() {
			t.Error("the first SET NX fails, or the second succeeds while the key exists")
		}
		time.Sleep(time.Hour)
		if !set() {
			t.Error("SET NX fails after an hour: the key has not expired")
		}
	})
}
