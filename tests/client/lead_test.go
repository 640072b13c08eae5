package clienttest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
	"github.com/simba-resp/simba-resp/engine"
)

func TestLeadRunsItsWorkOnceForEachTenure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		enough := errors.New("enough")
		var tokens []uint64
		err := g.Lead(bg, "job", func(ctx context.Context) error {
			tokens = append(tokens, client.Token(ctx))
			switch len(tokens) {
			case 1: // a loss, and work that is slow to end
				time.Sleep(time.Minute)
				w.breakOff("job")
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), client.ErrLost) {
					t.Errorf("the cause is %v, want ErrLost", context.Cause(ctx))
				}
				time.Sleep(time.Minute)
				w.nothingLeft("job")
				return ctx.Err()
			case 2:
				return errors.New("no paper")
			case 3:
				return nil
			}
			return client.Final(enough)
		})
		if err != enough || !slices.Equal(tokens, []uint64{1, 2, 3, 4}) {
			t.Errorf("Lead returns %v after the tenures %v, want the error of Final after 1 to 4", err, tokens)
		}
		w.nothingLeft("job")
		if got := log(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "mutex lost") || !strings.Contains(got, "no paper") {
			t.Errorf("the log does not have the loss and the failure only:\n%s", got)
		}
		must(t, g.Lead(bg, "job", func(context.Context) error { return client.Final(nil) }))
	})
}

func TestLeadPausesLongerWhileItsWorkReturnsAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(bg, 10*time.Minute)
		defer cancel()
		n := 0
		err := w.client().Lead(ctx, "job", func(context.Context) error { n++; return nil })
		if !errors.Is(err, context.DeadlineExceeded) || n < 60 || n > 75 { // at first, then every TTL
			t.Errorf("Lead returns %v after %d tenures in ten minutes, want about one each 10 s", err, n)
		}
	})
}

// In the pause between two tenures another contender of the Client may take the id.
func TestLeadWaitsForAnotherContenderOfItsID(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, again := w.client(), make(chan *client.Lock)
		go func() {
			time.Sleep(50 * time.Millisecond)
			l, err := g.TryLock(bg, "job", client.WithID("a"))
			must(t, err)
			again <- l
		}()
		ended := make(chan error)
		go func() {
			n := 0
			ended <- g.Lead(bg, "job", func(context.Context) error {
				if n++; n == 2 {
					return client.Final(nil)
				}
				return nil
			}, client.WithID("a"))
		}()
		l := <-again
		select {
		case err := <-ended:
			t.Errorf("Lead returns %v while another contender has its id", err)
		case <-time.After(time.Minute):
			w.unlock(l)
			must(t, <-ended)
		}
	})
}

func TestWorkThatPanicsOrEndsItsGoroutineReleasesTheMutex(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("no paper") }, "Goexit": runtime.Goexit} {
		inWorld(t, func(t *testing.T, w *world) {
			g := w.client()
			f := func(context.Context) error { end(); return nil }
			for _, run := range []func() error{
				func() error { return g.Do(bg, "job", f) },
				func() error { return g.Lead(bg, "job", f) },
				func() error { return g.Every(bg, "job", client.Schedule{Period: time.Second}, f) },
			} {
				recovered := make(chan any)
				go func() {
					defer func() { recovered <- recover() }()
					_ = run()
				}()
				if got := <-recovered; name == "panic" && got != "no paper" {
					t.Errorf("recover returns %v, want no paper, the panic of the work", got)
				}
				w.nothingLeft("job")
			}
		})
	}
}

func TestALeaderThatLosesItsMutexEndsIfGoRedisIsClosed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		time.AfterFunc(time.Minute, func() {
			must(t, g.rdb.Close())
			w.breakOff("job")
		})
		err := g.Lead(bg, "job", func(ctx context.Context) error { <-ctx.Done(); return nil })
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("Lead returns %v, want ErrClosed", err)
		}
		w.nothingLeft("job")
		_ = g.Close()
		g.replace(w)
	})
}

func TestLeadEndsInTimeWithoutReplies(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *world){
		"waits": func(t *testing.T, w *world) { w.client().take(t, "other", time.Hour) },
		"leads": func(*testing.T, *world) {},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				begin(t, w)
				g := w.client()
				ctx, cancel := context.WithCancel(bg)
				time.AfterFunc(5*time.Second, func() { g.silence(); cancel() })
				err := g.Lead(ctx, "job", func(ctx context.Context) error { <-ctx.Done(); return nil })
				if took := w.elapsed() - 5*time.Second; !errors.Is(err, context.Canceled) || took > timeout {
					t.Errorf("Lead returns %v, %v after its context has ended; want its error within %v", err, took, timeout)
				}
			})
		})
	}
}

func TestDefaultLoggerIsUsedWithoutALogger(t *testing.T) {
	log := defaultLog(t)
	inWorld(t, func(t *testing.T, w *world) {
		c, err := client.New(w.client().rdb, client.Options{})
		must(t, err)
		w.stop()
		_, _ = c.TryLock(bg, "job", client.WithID("a"))
		w.begin()
		must(t, c.Close())
		if !strings.Contains(log.String(), "the server does not answer") {
			t.Errorf("the log does not have the outage: %s", log)
		}
	})
}

// defaultLog returns what the default logger logs until the end of the test.
func defaultLog(t *testing.T) *bytes.Buffer {
	before, log := slog.Default(), new(bytes.Buffer)
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	return log
}

// services are what leads until its context ends. f runs while they lead.
func services(t *testing.T, g *testClient, f func(context.Context)) map[string]func(context.Context) error {
	work := func(ctx context.Context) error { f(ctx); return nil }
	k, err := contend.New(g.Client, "job", 0, f, nil)
	must(t, err)
	s, err := contend.NewScheduler(g.Client, "job", client.Schedule{Period: time.Hour}, work)
	must(t, err)
	return map[string]func(context.Context) error{"Contender": k.Run, "Scheduler": s.Run}
}

func TestRunContendsUntilItsContextEndsAndLeavesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		leads := make(chan any)
		for name, run := range services(t, w.client(), func(ctx context.Context) {
			leads <- ctx.Value(ctxKey{})
			<-ctx.Done()
			time.Sleep(time.Second) // the callback returns one second later
		}) {
			ctx, cancel := context.WithCancel(context.WithValue(bg, ctxKey{}, "value"))
			ended := make(chan error, 1)
			go func() { ended <- run(ctx) }()
			if got := <-leads; got != "value" {
				t.Errorf("%s: the callback's context has the value %v, want that of the context of Run", name, got)
			}
			if err := run(ctx); !errors.Is(err, client.ErrInUse) {
				t.Errorf("%s: a second Run returns %v, want ErrInUse", name, err)
			}
			at := w.elapsed()
			cancel()
			if err := <-ended; err != nil || w.elapsed()-at != time.Second {
				t.Errorf("%s: Run returns %v after %v, want nil after a second", name, err, w.elapsed()-at)
			}
			w.nothingLeft("job")
		}
	})
}

func TestCallbackThatEndsItsGoroutineEndsItsService(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		for range 2 { // the first run leaves nothing that hinders the second one
			k, err := contend.New(g.Client, "job", 0, func(context.Context) { runtime.Goexit() }, nil, client.WithID("k"))
			must(t, err)
			if err := k.Run(bg); err == nil || !strings.Contains(err.Error(), "ended its goroutine") || k.IsOwner() {
				t.Errorf("Run returns %v, want that a callback has ended its goroutine", err)
			}
			w.nothingLeft("job")
		}
	})
}

func TestStopInACallbackWithItsContextDoesNotWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var k *contend.Contender
		stopped := make(chan error, 1)
		k, err := contend.New(w.client().Client, "job", 0, func(ctx context.Context) { stopped <- k.Stop(ctx) }, nil)
		must(t, err)
		must(t, k.Run(bg))
		if err := <-stopped; !errors.Is(err, context.Canceled) || w.elapsed() != 0 {
			t.Errorf("Stop returns %v after %v, want the error of its context at once", err, w.elapsed())
		}
		w.nothingLeft("job")
	})
}

// A service that was started has no caller that receives its error.
func TestErrorOfAStartedServiceIsLogged(t *testing.T) {
	log := defaultLog(t)
	inWorld(t, func(t *testing.T, w *world) {
		k, err := contend.New(w.client().Client, "job", 0, func(context.Context) {}, nil, client.WithTTL(time.Microsecond))
		must(t, err)
		must(t, k.Start())
		synctest.Wait()
		if got := log.String(); strings.Count(got, "TTL is 1µs") != 1 {
			t.Errorf("the log does not have the error once: %s", got)
		}
		if err := k.Stop(bg); err == nil || !strings.Contains(err.Error(), "TTL is 1µs") {
			t.Errorf("Stop returns %v, want the error of the run", err)
		}
	})
}

func TestLeadLogsSmallerTokens(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.replace(engine.Recovery{Token: 100})
		g, log := w.logged()
		tenures := 0
		must(t, g.Lead(bg, "job", func(ctx context.Context) error {
			if tenures++; tenures > 1 {
				return client.Final(nil)
			}
			w.replace(engine.Recovery{}) // a server without data
			<-ctx.Done()
			return nil
		}))
		if n := strings.Count(log(), "smaller tokens"); n != 1 || !strings.Contains(log(), "token=1 before=101") {
			t.Errorf("the log names smaller tokens %d times, want once:\n%s", n, log())
		}
	})
}
