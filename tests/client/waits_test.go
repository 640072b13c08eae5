package clienttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

// waiting is a Lock of "job" on a goroutine of its own.
type waiting struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when Lock has returned
	lock   *client.Lock
	err    error
	at     time.Duration // when Lock returned
}

// waits starts a Lock. It returns when the client has done what it can do at once.
func (w *world) waits(g *testClient, o ...client.Option) *waiting {
	ctx, cancel := context.WithCancel(bg)
	b := &waiting{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.lock, b.err = g.Lock(ctx, "job", o...)
		b.at = w.elapsed()
	}()
	w.t.Cleanup(func() { cancel(); <-b.done })
	synctest.Wait()
	return b
}

// got returns the Lock. It fails the test if Lock takes longer than d from now.
func (b *waiting) got(w *world, d time.Duration) *client.Lock {
	w.t.Helper()
	from := w.elapsed()
	<-b.done
	if b.err != nil || b.at > from+d {
		w.t.Fatalf("Lock returns %v after %v, want nil within %v", b.err, b.at-from, d)
	}
	return b.lock
}

// calls returns how often the server has run each command, except those that begin a connection.
func (g *testClient) calls(t *testing.T) map[string]int {
	t.Helper()
	info, err := g.rdb.Info(bg, "commandstats").Result()
	must(t, err)
	calls := make(map[string]int)
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		n, _, _ := strings.Cut(rest, ",")
		calls[name], _ = strconv.Atoi(n)
	}
	maps.DeleteFunc(calls, func(name string, n int) bool {
		return n == 0 || name == "hello" || name == "info" || strings.HasPrefix(name, "client|")
	})
	return calls
}

// The waits are shorter than a third of the lease.
func TestContendedDoSendsTwoCommands(t *testing.T) {
	const rounds = 20
	for _, of := range []struct{ clients, goroutines int }{{8, 1}, {1, 8}} {
		t.Run(fmt.Sprint(of), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var all sync.WaitGroup
				for range of.clients {
					g := w.client()
					for range of.goroutines {
						all.Go(func() {
							for range rounds {
								if err := g.Do(bg, "job", func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }); err != nil {
									t.Error(err)
								}
							}
						})
					}
				}
				all.Wait()
				dos, outcomes := of.clients*of.goroutines*rounds, int(w.engine.Stats().Handoffs)
				calls := w.client().calls(t)
				next, sum := calls["simba.next"], 0
				delete(calls, "simba.next")
				for _, n := range calls {
					sum += n
				}
				if float64(sum) > 2.2*float64(dos) {
					t.Errorf("%d Dos sent %v, want at most 2.2 commands each", dos, calls)
				}
				// Each client begins with one NEXT that binds it, and ends with one that waits.
				if outcomes != dos-1 || next > outcomes+2*of.clients {
					t.Errorf("%d Dos have had %d outcomes by %d NEXTs, want one each, and two more a client", dos, outcomes, next)
				}
			})
		})
	}
}

func TestGrantAfterALongWaitIsRenewedBeforeTheWork(t *testing.T) {
	for wait, want := range map[time.Duration]struct {
		guards int
		left   time.Duration // of the lease of 12 s
	}{
		time.Second:             {0, 11 * time.Second},
		3300 * time.Millisecond: {0, 8700 * time.Millisecond}, // the owner renews 3.3 s after its request
		4100 * time.Millisecond: {1, 12 * time.Second},
		time.Hour:               {1, 12 * time.Second},
	} {
		t.Run(wait.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				other := w.client()
				other.take(t, "other", 2*time.Hour)
				b := w.waits(w.client())
				time.Sleep(wait)
				other.drop(t, "other")
				l := b.got(w, 0)
				if n, left := other.calls(t)["simba.guard"], time.Until(l.Owner().TransitionAt); n != want.guards || left != want.left {
					t.Errorf("the client has sent %d GUARDs, and its lease has %v left; want %d and %v", n, left, want.guards, want.left)
				}
				w.unlock(l)
			})
		})
	}
}

// go-redis replaces connections that are older than ConnMaxLifetime, without an error.
func TestWaitsSurviveTheLifetimeOfAPooledConnection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.client()
		other.take(t, "other", time.Hour)
		b := w.waits(w.clientOf("", client.Options{}, func(_ *testClient, o *redis.Options) {
			o.ConnMaxLifetime, o.ConnMaxIdleTime = 3*time.Second, time.Second
		}))
		time.Sleep(time.Minute)
		if q := w.queue("job"); len(q) != 1 {
			t.Errorf("the queue is %q, want one waiter", q)
		}
		other.drop(t, "other")
		w.unlock(b.got(w, 0))
	})
}

// The grant is lost with the connection, or is made when nobody waits, or after the fault.
func TestGrantDuringAFaultIsNotLost(t *testing.T) {
	const most = 7 * time.Second
	offsets := []time.Duration{time.Second, 2 * time.Second, 2900 * time.Millisecond, 4 * time.Second, time.Minute}
	for off := -15 * time.Millisecond; off <= 60*time.Millisecond; off += 5 * time.Millisecond {
		offsets = append(offsets, off)
	}
	for name, fault := range map[string]struct {
		begin func(*world, *testClient)
		late  time.Duration // until the waiter owns a mutex that is free a second after the fault, or later
	}{
		"cut":              {func(_ *world, g *testClient) { g.cutNext() }, 80 * time.Millisecond},
		"cut as all":       {func(_ *world, g *testClient) { g.cut() }, 80 * time.Millisecond},
		"frozen":           {func(_ *world, g *testClient) { g.freezeNext() }, 3200 * time.Millisecond},
		"all frozen":       {func(_ *world, g *testClient) { g.freeze() }, most},
		"server restarted": {func(w *world, _ *testClient) { w.restart() }, 80 * time.Millisecond},
		"server away":      {func(w *world, _ *testClient) { w.stop(); time.Sleep(time.Minute); w.begin() }, most},
		"silence":          {func(_ *world, g *testClient) { g.silence(); time.Sleep(time.Minute); g.heal() }, most},
	} {
		t.Run(name, func(t *testing.T) {
			for _, off := range offsets {
				inWorld(t, func(t *testing.T, w *world) {
					other, g := w.client(), w.client()
					other.take(t, "other", time.Hour)
					b := w.waits(g)
					g.slow(20*time.Millisecond, 20*time.Millisecond)
					time.Sleep(time.Second)
					time.AfterFunc(off+100*time.Millisecond, func() { w.breakOff("job") })
					time.Sleep(100 * time.Millisecond)
					fault.begin(w, g)
					limit := most
					if off >= time.Second {
						time.Sleep(off)
						limit = fault.late
					}
					if err := b.got(w, limit).Unlock(bg); err != nil && !errors.Is(err, client.ErrUnavailable) {
						t.Error(err)
					}
					time.Sleep(timeout)
					w.nothingLeft("job")
				})
			}
		})
	}
}

// The Client opens the connection for outcomes before a contender takes a queue entry. Without it, only
// a RELEASE that names nothing could remove the entry of a named contender.
func TestFirstWaiterThatGivesUpSoonLeavesNoQueueEntry(t *testing.T) {
	for _, id := range []string{"", "b"} {
		for d := time.Millisecond; d < 80*time.Millisecond; d += 3 * time.Millisecond {
			inWorld(t, func(t *testing.T, w *world) {
				w.client().take(t, "other", time.Hour)
				g := w.client()
				g.slow(5*time.Millisecond, 5*time.Millisecond)
				ctx, cancel := context.WithTimeout(bg, d)
				defer cancel()
				if _, err := g.Lock(ctx, "job", client.WithID(id)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Lock returns %v, want the end of its context", err)
				}
				time.Sleep(time.Second)
				if q := w.queue("job"); len(q) != 0 {
					t.Errorf("id %q, after %v: the queue is %q, want none", id, d, q)
				}
			})
		}
	}
}

// A balancer leads requests and SIMBA.NEXT to different servers of one store.
func TestWaiterPollsIfTheServerDoesNotKnowIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other, g := w.client(), w.client()
		must(t, g.rdb.Ping(bg).Err()) // connects
		g.connect(w.behindBalancer())
		other.take(t, "other", time.Hour)
		b := w.waits(g)
		time.Sleep(30 * time.Minute)
		if n := other.calls(t)["simba.acquire"]; n > 6 {
			t.Errorf("the waiter has sent %d requests in half an hour, want a few", n)
		}
		other.drop(t, "other")
		w.unlock(b.got(w, 0))
		w.nothingLeft("job")
	})
}

// The RELEASE reaches another server than the wait.
func TestGrantAfterAReleaseAtAnotherServerIsGivenBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.client()
		other.take(t, "other", time.Hour)
		g := w.client()
		b := w.waits(g, client.WithID("b"))
		g.connect(w.behindBalancer())
		g.mu.Lock()
		for c := range g.open {
			if !c.next {
				c.cut()
			}
		}
		g.mu.Unlock()
		b.cancel()
		time.Sleep(time.Second)
		if q := w.queue("job"); len(q) != 1 {
			t.Fatalf("the queue is %q, want the wait", q)
		}
		other.drop(t, "other")
		time.Sleep(time.Second)
		w.nothingLeft("job")
	})
}

// go-redis gives up a reply after its ReadTimeout. The server refuses a REQUEST that it knows.
func TestRequestThatWaitsIsNotRepeatedByGoRedis(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.client()
		other.take(t, "other", time.Hour)
		g := w.clientOf("", client.Options{}, func(_ *testClient, o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond })
		w.waits(g).cancel() // opens the connection for outcomes
		time.Sleep(time.Second)
		g.slow(0, 700*time.Millisecond)
		b := w.waits(g)
		g.slow(0, 0)
		time.Sleep(5 * time.Second)
		other.drop(t, "other")
		w.unlock(b.got(w, 0))
	})
}

// To the server, two waiters with one id are the same waiter.
func TestAnIDThatTwoWaitersUseIsLogged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.client()
		other.take(t, "other", time.Hour)
		a, log := w.logged()
		b, _ := w.logged()
		first, second := w.waits(a, client.WithID("same")), w.waits(b, client.WithID("same"))
		time.Sleep(time.Minute)
		if got := log(); strings.Count(got, "another waiter has the same contender id") != 1 {
			t.Errorf("the log does not say once that another waiter has the same id:\n%s", got)
		}
		first.cancel()
		second.cancel()
	})
}
