package clienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

// lock locks "job" with a Client.
func (w *world) lock(g *testClient) *client.Lock {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(bg, time.Hour)
	defer cancel()
	l, err := g.Lock(ctx, "job")
	must(w.t, err)
	return l
}

func (w *world) unlock(l *client.Lock) {
	w.t.Helper()
	if err := l.Unlock(bg); err != nil {
		w.t.Error(err)
	}
}

func TestLockHasTheWindowsOfItsOptions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for want, opts := range map[[2]time.Duration][]client.Option{
			{10 * time.Second, 12 * time.Second}: nil,
			{time.Second, 3 * time.Second}:       {client.WithTTL(time.Second)},
			{10 * time.Second, 10 * time.Second}: {client.WithTransition(0)},
			{time.Minute, 61 * time.Second}:      {client.WithTTL(time.Minute), client.WithTransition(time.Second)},
		} {
			g := w.client()
			l, err := g.Lock(bg, "job", opts...)
			must(t, err)
			o, err := g.Owner(bg, "job")
			must(t, err)
			if got := [2]time.Duration{time.Until(o.TTLAt), time.Until(o.TransitionAt)}; got != want {
				t.Errorf("the windows end in %v, want %v", got, want)
			}
			w.unlock(l)
		}
		g := w.clientWith(client.Options{TTL: 4 * time.Second})
		w.lock(g)
		if o, err := g.Owner(bg, "job"); err != nil || time.Until(o.TransitionAt) != 4*time.Second {
			t.Errorf("Owner returns %+v, %v, want the windows of the Client's options", o, err)
		}
	})
}

func TestLockIsHeldUntilUnlock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		for i := range uint64(3) {
			l := w.lock(g)
			own := l.Context()
			time.Sleep(time.Hour)
			if own.Err() != nil || client.Token(own) != i+1 || l.Token() != i+1 || w.owner("job") == "" {
				t.Errorf("after an hour Err of the ownership context is %v, its token %d, the owner %q", own.Err(), client.Token(own), w.owner("job"))
			}
			w.unlock(l)
			if own.Err() == nil || !errors.Is(context.Cause(own), client.ErrReleased) {
				t.Errorf("after Unlock, Err is %v and the cause %v, want ErrReleased", own.Err(), context.Cause(own))
			}
			w.nothingLeft("job")
		}
		if all := w.tenures("job"); len(all) != 3 || all[0].Owner == all[1].Owner || all[1].Owner == all[2].Owner {
			t.Errorf("the tenures are %v, want one contender for each Lock", all)
		}
	})
}

// When its context ends, Lock must not own the mutex then or later, whatever it was doing.
func TestTryLockWithATTLOfMilliseconds(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 9 * time.Millisecond} {
		t.Run(ttl.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				l, err := g.TryLock(bg, "job", lease(ttl, 0)...)
				must(t, err)
				time.Sleep(time.Second)
				w.unlock(l)
				g.slow(0, 10*time.Millisecond) // the reply takes longer than the lease
				at := w.elapsed()
				_, err = g.TryLock(bg, "job", lease(ttl, 0)...)
				if took := w.elapsed() - at; !errors.Is(err, client.ErrUnavailable) || took > 20*time.Millisecond {
					t.Errorf("TryLock returns %v after %v, want ErrUnavailable", err, took)
				}
				time.Sleep(time.Second)
				w.nothingLeft("job")
			})
		})
	}
}

func TestCanceledLockNeverOwnsTheMutex(t *testing.T) {
	for name, enter := range map[string]func(*world, *testClient) (want error){
		"the context ends before Lock": nil,
		"another contender owns it":    func(w *world, _ *testClient) error { w.contend("other"); synctest.Wait(); return nil },
		"the answer is slow":           func(_ *world, g *testClient) error { g.slow(0, 2*time.Second); return nil },
		"the request is slow":          func(_ *world, g *testClient) error { g.slow(2*time.Second, 0); return nil },
		"nobody answers":               func(_ *world, g *testClient) error { g.silence(); return nil },
		"there is no server":           func(w *world, _ *testClient) error { w.stop(); return errors.New("connection refused") },
		"the connection is frozen":     func(w *world, g *testClient) error { g.freeze(); return nil },
	} {
		for _, after := range []time.Duration{100 * time.Millisecond, 2900 * time.Millisecond, 30 * time.Second} {
			if strings.Contains(name, "slow") && after > time.Second {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", name, after), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					g := w.client()
					if err := g.rdb.Ping(bg).Err(); err != nil { // connects
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(bg, after)
					defer cancel()
					var want error
					if enter != nil {
						want = enter(w, g)
					} else {
						cancel()
					}
					if name == "the connection is frozen" && after > 3*time.Second {
						return // Lock succeeds, over a new connection
					}
					at := w.elapsed()
					l, err := g.Lock(ctx, "job")
					if l != nil || !errors.Is(err, client.ErrNotAcquired) || !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
						t.Errorf("the error is %v, want ErrNotAcquired", err)
					}
					if took := w.elapsed() - at; took != after && enter != nil {
						t.Errorf("Lock returned after %v, want %v", took, after)
					}
					if want != nil && after > time.Second && (err == nil || !strings.Contains(err.Error(), want.Error())) {
						t.Errorf("the error of Lock is %v, want one that contains %v", err, want)
					}
					if name == "another contender owns it" && !strings.Contains(err.Error(), "other owns it") {
						t.Errorf("the error of Lock is %v, want one that names the owner", err)
					}
					if want := enter != nil && name != "another contender owns it"; errors.Is(err, client.ErrUnavailable) != want {
						t.Errorf("the error of Lock is %v, want one that matches ErrUnavailable: %v", err, want)
					}
					time.Sleep(5 * time.Second)
					if w.server == nil {
						w.begin()
					}
					g.heal()
					g.slow(0, 0)
					time.Sleep(time.Minute)
					if o, q := w.owner("job"), w.queue("job"); o != "" && o != "other" || len(q) != 0 {
						t.Errorf("after Lock, %q owns the mutex and the queue is %q", o, q)
					}
				})
			})
		}
	}
}

func TestSecondUnlockIsHarmless(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		l := w.lock(g)
		w.unlock(l)
		next := w.lock(g)
		w.unlock(l)
		if err := next.Context().Err(); err != nil || w.owner("job") == "" {
			t.Errorf("after a second Unlock, Err of the next Lock's context is %v, or the mutex is free", err)
		}
		w.unlock(next)
	})
}

func TestLostLockEndsItsContextAndUnlockReturnsErrLost(t *testing.T) {
	for name, lose := range map[string]func(w *world, g *testClient){
		"broken":                    func(w *world, _ *testClient) { time.Sleep(9 * time.Second); w.breakOff("job") },
		"broken before it renewed":  func(w *world, _ *testClient) { w.breakOff("job") },
		"nobody answers":            func(_ *world, g *testClient) { g.silence() },
		"the server is gone":        func(w *world, _ *testClient) { w.stop() },
		"nobody answers for longer": func(_ *world, g *testClient) { g.silence(); time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				l := w.lock(g)
				own := l.Context()
				other := w.contend("other")
				synctest.Wait()
				d := w.recorder()
				d.begins(own)
				lose(w, g)
				<-own.Done()
				if !errors.Is(context.Cause(own), client.ErrLost) {
					t.Errorf("the cause is %v, want ErrLost", context.Cause(own))
				}
				for range 2 {
					if err := l.Unlock(bg); !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "another owner may have changed") {
						t.Errorf("Unlock returns %v, want ErrLost", err)
					}
				}
				if w.server == nil {
					w.begin()
				}
				g.heal()
				time.Sleep(time.Minute)
				if w.owner("job") != "other" || len(w.queue("job")) != 0 {
					t.Errorf("%q owns the mutex and the queue is %q, want other and no waiter", w.owner("job"), w.queue("job"))
				}
				// After BREAK there may be two owners until the notice or the renewal.
				if !strings.HasPrefix(name, "broken") {
					w.neverTwo("job", d, other.recorder)
				}
				other.stop()
				w.unlock(w.lock(g))
			})
		})
	}
}

func TestUnlockContinuesAfterItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		l := w.lock(g)
		g.slow(2*time.Second, 0)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := l.Unlock(ctx); !errors.Is(err, context.DeadlineExceeded) || l.Context().Err() == nil {
			t.Errorf("Unlock returns %v, want context.DeadlineExceeded", err)
		}
		time.Sleep(2 * time.Second)
		g.slow(0, 0)
		time.Sleep(3 * time.Second)
		w.nothingLeft("job")
	})
}

// go-redis repeats a request whose connection breaks before the reply.
func TestUnlockWhoseReplyIsLostReturnsNoError(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		l := w.lock(g)
		g.slow(0, time.Second)
		time.AfterFunc(time.Second/2, func() {
			if o := w.owner("job"); o != "" {
				t.Errorf("%q owns the mutex when the reply is lost, want no owner", o)
			}
			g.cut()
			g.slow(0, 0)
		})
		w.unlock(l)
		w.nothingLeft("job")
	})
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// refusing is a go-redis hook that fails commands with err until over is true.
type refusing struct {
	err  error
	over *atomic.Bool
}

func (refusing) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}
func (r refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.over.Load() {
			return next(ctx, cmd)
		}
		cmd.SetErr(r.err)
		return r.err
	}
}
func (refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
