package clienttest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
)

type ctxKey struct{}

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

// The owner subscribes to notices within a second after the grant. With a lease of an hour, it has no
// other reason to ask.
func TestBrokenLockEndsWithinASecond(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		hour := client.WithTTL(time.Hour)
		for name, options := range map[string][]client.Option{
			"default": nil, "an hour": {hour}, "an hour, not renewed": {hour, client.WithoutRenewal()},
		} {
			for _, after := range []time.Duration{0, 500 * time.Millisecond, 3 * time.Second, time.Minute} {
				l, err := w.client().Lock(bg, "job", options...)
				must(t, err)
				time.Sleep(after)
				at := w.elapsed()
				w.breakOff("job")
				<-l.Context().Done()
				if took := w.elapsed() - at; took > max(0, time.Second-after) || !errors.Is(context.Cause(l.Context()), client.ErrLost) {
					t.Errorf("%s, BREAK %v after Lock: the context ends %v later with the cause %v, want ErrLost within a second of Lock", name, after, took, context.Cause(l.Context()))
				}
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

func TestTryDoDoesNotRunWhileAnotherWorks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.contend("other")
		synctest.Wait()
		var held *client.NotAcquiredError
		err := w.client().TryDo(bg, "job", func(context.Context) error { t.Error("TryDo runs the work"); return nil })
		if !errors.As(err, &held) || held.Owner.ID != "other" || held.Mutex != "job" || w.elapsed() != 0 {
			t.Errorf("TryDo returns %v after %v, want that other owns job", err, w.elapsed())
		}
		if slices.ContainsFunc(w.history("job"), func(e simba.Event) bool { return e.Kind == simba.EventQueued }) {
			t.Errorf("TryDo has had a queue entry: %+v", w.history("job"))
		}
	})
}

func TestALockAndItsHooksHaveTheValuesOfTheCallerAndNotItsEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(context.WithValue(bg, ctxKey{}, "value"))
		g := w.clientWith(client.Options{Hook: func(ctx context.Context, e client.Event) {
			if ctx.Value(ctxKey{}) != "value" || ctx.Done() != nil || e.Mutex != "job" {
				t.Errorf("the hook gets %+v, the value %v and a context that can end: %v", e, ctx.Value(ctxKey{}), ctx.Done() != nil)
			}
		}})
		l, err := g.Lock(ctx, "job")
		must(t, err)
		cancel()
		time.Sleep(time.Minute)
		if l.Context().Err() != nil || l.Context().Value(ctxKey{}) != "value" {
			t.Errorf("Err of the ownership context is %v, its value %v, want nil and value", l.Context().Err(), l.Context().Value(ctxKey{}))
		}
		w.unlock(l)
	})
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
