package clienttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

type ctxKey struct{}

func TestDoHoldsTheMutexWhileWorkRuns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		ctx := context.WithValue(bg, ctxKey{}, "value")
		err := g.Do(ctx, "job", func(ctx context.Context) error {
			if client.Token(ctx) != 1 || ctx.Value(ctxKey{}) != "value" || w.owner("job") != "a" {
				t.Errorf("during the work the token is %d, the context's value %v, the owner %q; want 1, value, a", client.Token(ctx), ctx.Value(ctxKey{}), w.owner("job"))
			}
			time.Sleep(time.Hour)
			return ctx.Err()
		}, client.WithID("a"))
		must(t, err)
		w.nothingLeft("job")
	})
}

func TestDoReturnsTheErrorOfWorkUnchanged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		failure := errors.New("no paper")
		for name, do := range map[string]func(context.Context, string, func(context.Context) error, ...client.Option) error{"Do": w.client().Do, "TryDo": w.client().TryDo} {
			if err := do(bg, "job", func(context.Context) error { return failure }); err != failure {
				t.Errorf("%s returns %v, want the error of the work itself", name, err)
			}
			w.nothingLeft("job")
		}
	})
}

func TestTheContextOfDoEndsWithItsCaller(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cause := errors.New("the user hung up")
		ctx, cancel := context.WithCancelCause(bg)
		err := w.client().Do(ctx, "job", func(ctx context.Context) error {
			cancel(cause)
			<-ctx.Done()
			if context.Cause(ctx) != cause {
				t.Errorf("the cause is %v, want %v", context.Cause(ctx), cause)
			}
			time.Sleep(time.Minute) // the mutex stays locked until the work has ended
			if w.owner("job") == "" {
				t.Error("the mutex is free before the work has returned")
			}
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrLost) {
			t.Errorf("the error is %v, want context.Canceled", err)
		}
		w.nothingLeft("job")
	})
}

func TestTheContextOfDoHasTheDeadlineOfItsCaller(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		want, _ := ctx.Deadline()
		must(t, g.Do(ctx, "job", func(ctx context.Context) error {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			if got, ok := derived.Deadline(); !ok || !got.Equal(want) {
				t.Errorf("the deadline is %v, want %v", got, want)
			}
			return nil
		}))
		must(t, g.Do(bg, "job", func(ctx context.Context) error {
			if got, ok := ctx.Deadline(); ok {
				t.Errorf("the context of the work has the deadline %v, but the context of Do has none", got)
			}
			return nil
		}))
	})
}

// The work may leave a goroutine running. The goroutine's context must end before another contender
// owns the mutex.
func TestTheContextOfDoEndsBeforeTheMutexIsFree(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		must(t, g.rdb.Ping(bg).Err())
		g.slow(100*time.Millisecond, 100*time.Millisecond)
		ended := make(chan string, 1)
		must(t, g.Do(bg, "job", func(ctx context.Context) error {
			derived, cancel := context.WithTimeout(ctx, time.Hour)
			go func() {
				defer cancel()
				<-derived.Done()
				ended <- w.owner("job")
			}()
			return nil
		}, client.WithID("a")))
		if owner := <-ended; owner != "a" {
			t.Errorf("when the context ends %q owns the mutex, want a", owner)
		}
	})
}

func TestDoRejectsNilWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if err := w.client().Do(bg, "job", nil); err == nil || len(w.history("job")) > 0 {
			t.Errorf("Do without work returns %v, want an error; the server has the events %v, want none", err, w.history("job"))
		}
	})
}

// The owner subscribes to notices one second after the grant.
func TestBrokenLockEndsWithinASecond(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, after := range []time.Duration{0, 500 * time.Millisecond, 3 * time.Second, time.Minute} {
			l := w.lock(w.client())
			time.Sleep(after)
			at := w.elapsed()
			w.breakOff("job")
			<-l.Context().Done()
			most := max(0, time.Second-after)
			if took := w.elapsed() - at; took > most || !errors.Is(context.Cause(l.Context()), client.ErrLost) {
				t.Errorf("BREAK %v after Lock: the context ends %v later with the cause %v, want ErrLost within a second of Lock", after, took, context.Cause(l.Context()))
			}
		}
	})
}

func TestDoReturnsErrLost(t *testing.T) {
	failure := errors.New("no paper")
	for name, returns := range map[string]func(context.Context) error{
		"the work ends with its context": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"the work fails":                 func(context.Context) error { return failure },
		"the work ignores the loss":      func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				err := w.client().Do(bg, "job", func(ctx context.Context) error {
					w.breakOff("job")
					if name == "the work ends with its context" {
						return returns(ctx)
					}
					time.Sleep(time.Minute)
					if !errors.Is(context.Cause(ctx), client.ErrLost) {
						t.Errorf("the cause is %v, want ErrLost", context.Cause(ctx))
					}
					return returns(ctx)
				})
				if !errors.Is(err, client.ErrLost) || name == "the work fails" && !errors.Is(err, failure) {
					t.Errorf("the error is %v, want ErrLost, and also the error of the work if it fails", err)
				}
			})
		})
	}
}

func TestDoUnlocksThoughWorkPanicsOrEndsItsGoroutine(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("no paper") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				recovered := make(chan any)
				go func() {
					defer func() { recovered <- recover() }()
					_ = g.Do(bg, "job", func(context.Context) error { end(); return nil })
				}()
				if got := <-recovered; name == "panic" && got != "no paper" {
					t.Errorf("recover returns %v, want no paper, the panic of the work", got)
				}
				w.nothingLeft("job")
			})
		})
	}
}

func TestTryDoDoesNotRunWhileAnotherWorks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.contend("other")
		synctest.Wait()
		var held *client.NotAcquiredError
		err := w.client().TryDo(bg, "job", func(context.Context) error { t.Error("TryDo runs the work"); return nil })
		if !errors.As(err, &held) || held.Owner.ID != "other" || held.Mutex != "job" || w.elapsed() != 0 {
			t.Errorf("TryDo returns %v after %v, want that other owns job", err, w.elapsed())
		}
	})
}

func TestALockHasTheValuesOfItsCallerAndNotItsEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(context.WithValue(bg, ctxKey{}, "value"))
		l, err := w.client().Lock(ctx, "job")
		must(t, err)
		cancel()
		time.Sleep(time.Minute)
		if l.Context().Err() != nil || l.Context().Value(ctxKey{}) != "value" {
			t.Errorf("Err of the ownership context is %v, its value %v, want nil and value", l.Context().Err(), l.Context().Value(ctxKey{}))
		}
		w.unlock(l)
	})
}

func TestCheckNeedsOnlyTheToken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		l := w.lock(g)
		for token, want := range map[uint64]bool{l.Token(): true, l.Token() + 1: false} {
			if holds, err := g.Check(bg, "job", token); holds != want || err != nil {
				t.Errorf("Check of token %d returns %v, %v, want %v", token, holds, err, want)
			}
		}
		w.unlock(l)
		if holds, err := g.Check(bg, "job", l.Token()); holds || err != nil {
			t.Errorf("after Unlock, Check returns %v, %v, want false", holds, err)
		}
		if _, err := g.Check(bg, "", 1); err == nil {
			t.Error("Check of the mutex \"\" returns nil, want an error")
		}
		g.silence()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err := g.Check(ctx, "job", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Check returns %v when its context has ended, want context.DeadlineExceeded", err)
		}
		if _, err := g.Check(bg, "job", 1); !errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Check returns %v when the server does not answer, want ErrUnavailable", err)
		}
	})
}

func TestNotAcquiredErrorNamesTheOwner(t *testing.T) {
	held := &client.NotAcquiredError{Mutex: "job", Owner: client.Owner{ID: "a"}}
	for want, err := range map[string]error{
		"lock job: mutex not acquired, a owns it":                            held,
		"lock job: mutex not acquired, another waiter is next":               &client.NotAcquiredError{Mutex: "job"},
		"lock job: mutex not acquired: context canceled":                     &client.NotAcquiredError{Mutex: "job", Err: context.Canceled},
		"lock job: mutex not acquired: context deadline exceeded, a owns it": &client.NotAcquiredError{Mutex: "job", Owner: client.Owner{ID: "a"}, Err: context.DeadlineExceeded},
	} {
		if err.Error() != want || !errors.Is(err, client.ErrNotAcquired) || !strings.Contains(fmt.Sprint(err), "job") {
			t.Errorf("the text of the error is %v, want %s", err, want)
		}
	}
}

// The log of a loss has one line, whether the work returns the error of its context or the cause.
func TestALossIsLoggedOnce(t *testing.T) {
	for name, work := range map[string]func(context.Context) error{"error": context.Context.Err, "cause": context.Cause} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g, log := w.logged()
				lose := func(ctx context.Context) error {
					time.Sleep(5 * time.Second)
					w.breakOff("job")
					<-ctx.Done()
					return work(ctx)
				}
				if err := g.Do(bg, "job", lose); !errors.Is(err, client.ErrLost) {
					t.Errorf("Do returns %v, want ErrLost", err)
				}
				tenures := 0
				must(t, g.Lead(bg, "job", func(ctx context.Context) error {
					if tenures++; tenures == 2 {
						return client.Final(nil)
					}
					return lose(ctx)
				}))
				if got := log(); strings.Count(got, "\n") != 2 || strings.Count(got, "mutex lost") != 2 {
					t.Errorf("the log is\n%swant two lines, each with mutex lost", got)
				}
			})
		})
	}
}
