package clienttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
	"github.com/simba-resp/simba-resp/client/worker"
)

// inShortWorld runs a test with a server that vouches for leases of 6 s.
func inShortWorld(t *testing.T, test func(*testing.T, *world)) {
	inWorld(t, func(t *testing.T, w *world) {
		w.longest.Store(int64(6 * time.Second))
		w.restart()
		test(t, w)
	})
}

// holds fails the test unless the owner of the mutex has a lease of ttl + transition, renewed at
// most d ago.
func (w *world) holds(mutex string, ttl, transition, d time.Duration) {
	w.t.Helper()
	o, _, err := w.engine.Owner(bg, mutex)
	must(w.t, err)
	if o.Transition-o.TTL != transition || o.TTL > ttl || o.TTL < ttl-d {
		w.t.Errorf("the owner of %s is %+v, want a lease of %v + %v, renewed at most %v ago", mutex, o, ttl, transition, d)
	}
}

func TestDefaultLeaseShrinksToTheLongestOfTheServer(t *testing.T) {
	inShortWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		must(t, g.rdb.Ping(bg).Err()) // a new connection sends commands of its own
		n := g.countCommands()
		l := w.lock(g)
		if n.Load() != 2 {
			t.Errorf("the first Lock sends %d requests, want a refused one and another", n.Load())
		}
		w.holds("job", 5*time.Second, time.Second, 0)
		if o := l.Owner(); time.Until(o.TTLAt) != 5*time.Second || time.Until(o.TransitionAt) != 6*time.Second {
			t.Errorf("the owner is %+v, want windows that end in 5 and 6 s", o)
		}
		time.Sleep(time.Minute)
		w.holds("job", 5*time.Second, time.Second, 4*time.Second)
		must(t, l.Unlock(bg))
		n.Store(0)
		l = w.lock(g)
		if n.Load() != 1 {
			t.Errorf("the second Lock sends %d requests, want 1", n.Load())
		}
		must(t, l.Unlock(bg))
		w.longest.Store(int64(3 * time.Second)) // the session was renegotiated
		l = w.lock(g)
		w.holds("job", 2500*time.Millisecond, 500*time.Millisecond, 0)
		must(t, l.Unlock(bg))
	})
}

func TestEachDefaultLeaseShrinksToTheLongestOfTheServer(t *testing.T) {
	inShortWorld(t, func(t *testing.T, w *world) {
		l := must1(t)(w.client().TryLock(bg, "try"))
		w.holds("try", 5*time.Second, time.Second, 0)
		must(t, l.Unlock(bg))
		l = must1(t)(w.client().Lock(bg, "transition", client.WithTTL(4*time.Second), client.WithTransition(client.NoTransition)))
		must(t, l.Unlock(bg))
		l = must1(t)(w.client().Lock(bg, "transition", client.WithTTL(4500*time.Millisecond)))
		w.holds("transition", 4500*time.Millisecond, 1500*time.Millisecond, 0)
		must(t, l.Unlock(bg))
		r := w.client().registry(t, registry.Config{})
		rl, h := obtain(t, r, "k"), r.NewHolder()
		must(t, rl.Lock(bg, h))
		w.holds("spring:k", 6*time.Second, 0, 0)
		must(t, rl.Unlock(bg, h))
		k, err := worker.New(w.client().Client, worker.Config{Mutex: "work", StartWork: func(context.Context) error { return nil }, StopWork: func() error { return nil }})
		must(t, err)
		must(t, k.Start())
		time.Sleep(time.Minute)
		w.holds("work", 5*time.Second, time.Second, 4*time.Second)
		must(t, k.Stop(bg))
	})
}

func TestExplicitLeaseThatIsTooLongIsAnError(t *testing.T) {
	inShortWorld(t, func(t *testing.T, w *world) {
		g := w.clientWith(client.Options{TTL: 10 * time.Second})
		for name, lock := range map[string]func() error{
			"Lock": func() error { _, err := g.Lock(bg, "job"); return err },
			"TryLock": func() error {
				_, err := w.client().TryLock(bg, "job", client.WithTTL(6*time.Second), client.WithTransition(time.Second))
				return err
			},
			"Do": func() error {
				return w.client().Do(bg, "job", func(context.Context) error { return nil }, client.WithTTL(time.Minute))
			},
			"registry": func() error {
				r := w.client().registry(t, registry.Config{ExpireAfter: time.Minute})
				return obtain(t, r, "k").Lock(bg, r.NewHolder())
			},
		} {
			var long *client.TooLongError
			if err := lock(); !errors.As(err, &long) || long.Longest != 6*time.Second {
				t.Errorf("%s returns %v, want a TooLongError with 6 s", name, err)
			}
		}
		w.nothingLeft("job")
	})
}

// An owner whose session was renegotiated cannot renew. It loses the mutex before its lease ends,
// and contends again with a shorter lease.
func TestOwnerWhoseLeaseHasBecomeTooLongContendsAgainWithAShorterOne(t *testing.T) {
	inShortWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		d := w.recorder()
		k, err := g.NewContender(client.ContenderConfig{Mutex: "job", OnAcquired: d.acquired, OnReleased: d.released})
		must(t, err)
		must(t, k.Start())
		time.Sleep(time.Second)
		w.longest.Store(int64(3 * time.Second))
		time.Sleep(time.Minute)
		w.holds("job", 2500*time.Millisecond, 500*time.Millisecond, 2100*time.Millisecond)
		if got := d.callbacks(); got != "[acquired 1 released acquired 2]" {
			t.Errorf("the callbacks are %s, want one loss and a new tenure", got)
		}
		w.neverTwo("job", d)
		must(t, k.Stop(bg))
	})
}

func must1(t *testing.T) func(*client.Lock, error) *client.Lock {
	return func(l *client.Lock, err error) *client.Lock { t.Helper(); must(t, err); return l }
}
