package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

// locker returns a Locker of "job" over a Client of its own, with a lease of 10 s and 2 s.
// It is closed with the world at the latest.
func (w *world) locker() (*Locker, *guest) {
	w.t.Helper()
	g := w.client()
	return w.lockerOver(g, "job"), g
}

func (w *world) lockerOver(g *guest, mutex string) *Locker {
	w.t.Helper()
	l, err := g.NewLocker(LockerConfig{Mutex: mutex, TTL: 10 * time.Second, Transition: 2 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = l.Close()
		time.Sleep(time.Minute) // for what goes on in the background
	})
	return l
}

// lock locks and fails if it cannot.
func (w *world) lock(l *Locker) context.Context {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(bg, time.Hour)
	defer cancel()
	own, err := l.Lock(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return own
}

func (w *world) unlock(l *Locker) {
	w.t.Helper()
	if err := l.Unlock(bg); err != nil {
		w.t.Error(err)
	}
}

func TestLockerThatCannotBeIsRefusedAtConstruction(t *testing.T) {
	c := new(Client)
	for want, cfg := range map[string]LockerConfig{
		"mutex":            {TTL: time.Second},
		"TTL is 0s, not":   {Mutex: "job"},
		"Transition is -1": {Mutex: "job", TTL: time.Second, Transition: -time.Millisecond},
	} {
		if l, err := c.NewLocker(cfg); l != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestLockIsHeldUntilUnlock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		for i := range uint64(3) {
			own := w.lock(l)
			time.Sleep(time.Hour)
			if own.Err() != nil || Token(own) != i+1 || w.owner("job") == "" {
				t.Errorf("after an hour: %v, token %d, owner %q", own.Err(), Token(own), w.owner("job"))
			}
			w.unlock(l)
			if own.Err() == nil || !errors.Is(context.Cause(own), ErrReleased) {
				t.Errorf("after Unlock: %v, cause %v", own.Err(), context.Cause(own))
			}
			w.nothingLeft("job")
		}
		ids := owners(w.tenures("job"))
		if len(ids) != 3 || ids[0] == ids[1] || ids[1] == ids[2] {
			t.Errorf("the contenders were %q, want one for each Lock", ids)
		}
	})
}

func TestLocksAreHadInTheOrderOfTheirAsking(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var order []int
		first, _ := w.locker()
		w.lock(first)
		done := make(chan struct{})
		for i := range 10 {
			l, _ := w.locker()
			go func() {
				w.lock(l)
				order = append(order, i) // one at a time: it is a lock
				w.unlock(l)
				done <- struct{}{}
			}()
			synctest.Wait()
		}
		at := w.elapsed()
		w.unlock(first)
		for range 10 {
			<-done
		}
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(order, want) || w.elapsed() != at {
			t.Errorf("%v after %v", order, w.elapsed()-at)
		}
		w.nothingLeft("job")
	})
}

func TestTryLockDoesNotWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, _ := w.locker()
		b, g := w.locker()
		if _, err := a.TryLock(bg); err != nil {
			t.Fatal(err)
		}
		if own, err := b.TryLock(bg); own != nil || !errors.Is(err, ErrNotAcquired) || w.elapsed() != 0 {
			t.Errorf("what another has: %v after %v", err, w.elapsed())
		}
		if q := w.queue("job"); len(q) != 0 {
			t.Errorf("%q wait", q)
		}
		for _, e := range w.history("job") {
			if e.Kind == simba.EventQueued {
				t.Errorf("%s took a place in the queue", e.Owner)
			}
		}
		w.unlock(a)
		own, err := b.TryLock(bg)
		if err != nil || Token(own) != 2 {
			t.Errorf("what is free: %v, token %d", err, Token(own))
		}
		time.Sleep(time.Hour)
		if own.Err() != nil {
			t.Errorf("after an hour: %v", own.Err())
		}
		w.unlock(b)
		g.silence()
		at := w.elapsed()
		if _, err := b.TryLock(bg); err == nil || w.elapsed()-at > 3*time.Second {
			t.Errorf("without an answer: %v after %v", err, w.elapsed()-at)
		}
	})
}

// The context ends while Lock is in one state or another. Nobody has the mutex then, nor later.
func TestLockThatIsGivenUpNeverOwnsTheMutex(t *testing.T) {
	for name, enter := range map[string]func(*world, *guest) (want error){
		"before":                 nil,
		"another has it":         func(w *world, _ *guest) error { w.contend("other"); synctest.Wait(); return nil },
		"the answer is slow":     func(_ *world, g *guest) error { g.slow(0, 2*time.Second); return nil },
		"the request is slow":    func(_ *world, g *guest) error { g.slow(2*time.Second, 0); return nil },
		"nobody answers":         func(_ *world, g *guest) error { g.silence(); return nil },
		"there is no server":     func(w *world, _ *guest) error { w.stop(); return errors.New("connection refused") },
		"the server is silenced": func(w *world, g *guest) error { g.freeze(); return nil },
	} {
		for _, after := range []time.Duration{100 * time.Millisecond, 2900 * time.Millisecond, 30 * time.Second} {
			if strings.Contains(name, "slow") && after > time.Second {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", name, after), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					l, g := w.locker()
					if err := g.rdb.Ping(bg).Err(); err != nil { // so there is a connection
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
					if name == "the server is silenced" && after > 3*time.Second {
						return // it is found out
					}
					at := w.elapsed()
					own, err := l.Lock(ctx)
					if own != nil || !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
						t.Errorf("%v", err)
					}
					if took := w.elapsed() - at; took != after && enter != nil {
						t.Errorf("it took %v", took)
					}
					if want != nil && after > time.Second && (err == nil || !strings.Contains(err.Error(), want.Error())) {
						t.Errorf("%v does not say %v", err, want)
					}
					if _, err := l.TryLock(ctx); errors.Is(err, ErrInUse) {
						t.Error(err)
					}
					time.Sleep(5 * time.Second)
					if w.server == nil {
						w.begin()
					}
					g.heal()
					g.slow(0, 0)
					time.Sleep(time.Minute)
					if o, q := w.owner("job"), w.queue("job"); o != "" && o != "other" || len(q) != 0 {
						t.Errorf("%q owns the mutex, %q wait", o, q)
					}
				})
			})
		}
	}
}

func TestLockerIsForOneAtATime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		inUse := func(when string) {
			t.Helper()
			if _, err := l.Lock(bg); !errors.Is(err, ErrInUse) {
				t.Errorf("Lock %s: %v", when, err)
			}
			if _, err := l.TryLock(bg); !errors.Is(err, ErrInUse) {
				t.Errorf("TryLock %s: %v", when, err)
			}
		}
		other, _ := w.locker()
		w.lock(other)
		locked := make(chan struct{})
		go func() { defer close(locked); w.lock(l) }()
		synctest.Wait()
		inUse("while it is being locked")
		if err := l.Unlock(bg); !errors.Is(err, ErrNotLocked) {
			t.Errorf("Unlock while it is being locked: %v", err)
		}
		w.unlock(other)
		<-locked
		inUse("while it is locked")
		w.unlock(l)
		if err := l.Unlock(bg); !errors.Is(err, ErrNotLocked) {
			t.Errorf("a second Unlock: %v", err)
		}
		w.lock(l)
		w.unlock(l)
	})
}

func TestLostLockEndsItsOwnershipAndUnlockSaysSo(t *testing.T) {
	for name, lose := range map[string]func(w *world, g *guest){
		"broken":                    func(w *world, _ *guest) { time.Sleep(9 * time.Second); w.breakOff("job") },
		"broken before it renewed":  func(w *world, _ *guest) { w.breakOff("job") },
		"nobody answers":            func(_ *world, g *guest) { g.silence() },
		"the server is gone":        func(w *world, _ *guest) { w.stop() },
		"nobody answers for longer": func(_ *world, g *guest) { g.silence(); time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l, g := w.locker()
				own := w.lock(l)
				other := w.contend("other")
				synctest.Wait()
				d := w.diary()
				d.begins(own)
				lose(w, g)
				<-own.Done()
				if !errors.Is(context.Cause(own), ErrLost) {
					t.Errorf("cause %v", context.Cause(own))
				}
				if _, err := l.TryLock(bg); !errors.Is(err, ErrInUse) {
					t.Errorf("TryLock before Unlock: %v", err)
				}
				if err := l.Unlock(bg); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "changed by others") {
					t.Errorf("Unlock: %v", err)
				}
				if w.server == nil {
					w.begin()
				}
				g.heal()
				time.Sleep(time.Minute)
				if w.owner("job") != "other" || len(w.queue("job")) != 0 {
					t.Errorf("%q owns the mutex, %q wait", w.owner("job"), w.queue("job"))
				}
				if !strings.HasPrefix(name, "broken") { // by force there may be two for the time of a notice, or of a renewal
					w.neverTwo("job", d, other.diary)
				}
				other.stop()
				w.lock(l)
				w.unlock(l)
			})
		})
	}
}

func TestLostLockIsNotHadAgainBehindItsHoldersBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		own := w.lock(l)
		time.Sleep(time.Minute)
		w.breakOff("job")
		<-own.Done()
		time.Sleep(time.Hour)
		w.nothingLeft("job")
		if got := w.tenures("job"); len(got) != 1 {
			t.Errorf("tenures: %+v", got)
		}
		if err := l.Unlock(bg); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
}

// What was broken is found out by the release at the latest.
func TestUnlockOfABrokenLockSaysSo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		w.lock(l)
		w.breakOff("job")
		if err := l.Unlock(bg); !errors.Is(err, ErrLost) {
			t.Errorf("%v", err)
		}
	})
}

func TestUnlockWaitsNoLongerThanItsContextAndGoesOn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, g := w.locker()
		own := w.lock(l)
		g.slow(2*time.Second, 0)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := l.Unlock(ctx); !errors.Is(err, context.DeadlineExceeded) || own.Err() == nil {
			t.Errorf("%v", err)
		}
		// The next Lock need not wait: it is another contender.
		if _, err := l.TryLock(bg); errors.Is(err, ErrInUse) {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		g.slow(0, 0)
		_ = l.Close()
		time.Sleep(3 * time.Second)
		w.nothingLeft("job")
	})
}

func TestCloseUnlocksWhatIsLockedAndEndsALockThatWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		if err := l.Close(); err != nil {
			t.Errorf("unlocked: %v", err)
		}
		own := w.lock(l)
		if err := l.Close(); err != nil || own.Err() == nil {
			t.Errorf("locked: %v", err)
		}
		w.nothingLeft("job")
		if err := l.Close(); err != nil {
			t.Errorf("again: %v", err)
		}
		w.contend("other")
		synctest.Wait()
		failed := make(chan error)
		go func() {
			_, err := l.Lock(bg)
			failed <- err
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; !errors.Is(err, ErrNotAcquired) {
			t.Errorf("the Lock that waited: %v", err)
		}
		synctest.Wait()
		if q := w.queue("job"); len(q) != 0 {
			t.Errorf("%q wait", q)
		}
	})
}

// refusal is an error that a server answers.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// refusing is a go-redis hook that answers instead of the server.
type refusing struct{ err error }

func (refusing) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}
func (r refusing) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { cmd.SetErr(r.err); return r.err }
}
func (refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestWhatTheServerRefusesIsReturnedAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, g := w.locker()
		g.rdb.AddHook(refusing{refusal("NOPERM this user has no permissions")})
		if _, err := l.Lock(bg); err == nil || !strings.Contains(err.Error(), "NOPERM") || w.elapsed() != 0 {
			t.Errorf("Lock: %v after %v", err, w.elapsed())
		}
		if _, err := l.TryLock(bg); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("TryLock: %v", err)
		}
	})
}

func TestWhatPassesIsWaitedFor(t *testing.T) {
	for _, passing := range []refusal{"TRYAGAIN engine redis unavailable: i/o timeout", "OOM command not allowed when used memory > 'maxmemory'."} {
		inWorld(t, func(t *testing.T, w *world) {
			l, g := w.locker()
			g.rdb.AddHook(refusing{passing})
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			_, err := l.Lock(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), string(passing)) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestLockersOfAClientShareItsConnections(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var all []*Locker
		for i := range 50 {
			l := w.lockerOver(g, fmt.Sprint("job", i))
			w.lock(l)
			all = append(all, l)
		}
		time.Sleep(9 * time.Second) // all have renewed, and listen
		if n := w.broker.Subscribers(0, "simba:{job0}"); n != 1 {
			t.Errorf("%d subscribers", n)
		}
		time.Sleep(time.Minute)
		if n := g.count() - int(g.rdb.PoolStats().TotalConns); n != 1 {
			t.Errorf("%d connections besides those of go-redis' pool", n)
		}
		for _, l := range all {
			w.unlock(l)
		}
	})
}
