package clienttest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
)

// store is a backend that passes requests to an engine or refuses them.
type store struct {
	simba.Backend
	refuses atomic.Bool
	err     error        // of a refusal; nil = the error of a misconfigured store
	asked   atomic.Int64 // how many requests it has refused
}

const noTable = "ERR engine mysql misconfigured: table simba_mutex does not exist"

func (s *store) refuse() error {
	if !s.refuses.Load() {
		return nil
	}
	s.asked.Add(1)
	if s.err != nil {
		return s.err
	}
	return &simba.MisconfiguredError{Engine: "mysql", Err: errors.New("table simba_mutex does not exist")}
}

func (s *store) Acquire(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	if err := s.refuse(); err != nil {
		return simba.Outcome{}, nil, err
	}
	return s.Backend.Acquire(ctx, r)
}

func (s *store) Guard(ctx context.Context, r simba.GuardRequest) (simba.Outcome, error) {
	if err := s.refuse(); err != nil {
		return simba.Outcome{}, err
	}
	return s.Backend.Guard(ctx, r)
}

func (s *store) Release(ctx context.Context, r simba.ReleaseRequest) (bool, simba.Seq, error) {
	if err := s.refuse(); err != nil {
		return false, 0, err
	}
	return s.Backend.Release(ctx, r)
}

func (s *store) Owner(ctx context.Context, mutex string) (simba.Tenure, simba.Seq, error) {
	if err := s.refuse(); err != nil {
		return simba.Tenure{}, 0, err
	}
	return s.Backend.Owner(ctx, mutex)
}

// withStore puts a store between the server and its engine.
func (w *world) withStore() *store {
	w.stop()
	w.store = &store{Backend: w.engine}
	w.begin()
	return w.store
}

// logged returns a client, and a function that returns its log.
func (w *world) logged() (_ *testClient, read func() string) {
	log := new(bytes.Buffer)
	return w.clientWith(client.Options{Logger: slog.New(slog.NewTextHandler(log, nil))}), func() string {
		synctest.Wait()
		return log.String()
	}
}

func TestContenderBacksOffWhileTheStoreIsMisconfigured(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.withStore()
		g, log := w.logged()
		s.refuses.Store(true)
		k := w.contendOver(g, "k")
		time.Sleep(10 * time.Minute)
		if n := s.asked.Load(); n < 200 || n > 450 { // at first, then every 2 s with jitter
			t.Errorf("the contender sent %d requests in ten minutes, want one each 2 s", n)
		}
		if got := log(); strings.Count(got, "the server refuses the contender") != 1 || strings.Count(got, noTable) != 1 {
			t.Errorf("the log has no single refusal with the cause:\n%s", got)
		}
		s.refuses.Store(false)
		time.Sleep(3 * time.Second)
		if !k.IsOwner() {
			t.Error("3 s after the repair of the store, the contender is not the owner")
		}
		if got := log(); !strings.Contains(got, "the server accepts the contender's requests again") {
			t.Errorf("the log does not say that the server accepts requests again:\n%s", got)
		}
	})
}

func TestRefusalAfterAnOutageIsLogged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.withStore()
		g, log := w.logged()
		w.stop()
		w.contendOver(g, "k")
		time.Sleep(time.Minute)
		s.refuses.Store(true)
		w.begin()
		time.Sleep(2 * time.Minute)
		if got := log(); strings.Count(got, "the server refuses the contender") != 1 {
			t.Errorf("the log does not have one refusal:\n%s", got)
		}
		w.stop()
		time.Sleep(time.Minute)
		w.begin()
		time.Sleep(2 * time.Minute)
		if got := log(); strings.Count(got, "the server refuses the contender") != 1 {
			t.Errorf("after another outage, the log does not have one refusal:\n%s", got)
		}
	})
}

func TestOwnerKeepsItsLeaseIfTheStoreRecoversInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.withStore()
		g, _ := w.logged()
		k := w.contendOver(g, "k", lease(10*time.Second, 10*time.Second))
		time.Sleep(10*time.Second - 1)
		s.refuses.Store(true)
		time.Sleep(5 * time.Second)
		if n := s.asked.Load(); n < 3 || n > 20 {
			t.Errorf("the owner tried %d times in 5 s to renew, want 3 to 20", n)
		}
		s.refuses.Store(false)
		time.Sleep(time.Minute)
		if got := k.callbacks(); got != "[acquired 1]" {
			t.Errorf("the callbacks are %s, want acquired 1", got)
		}
	})
}

func TestLockReturnsTheErrorOfAMisconfiguredStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.withStore()
		g := w.client()
		s.refuses.Store(true)
		for name, lock := range map[string]func(context.Context, string, ...client.LockOption) (*client.Lock, error){"Lock": g.Lock, "TryLock": g.TryLock} {
			var refused redis.Error
			if _, err := lock(t.Context(), "job"); !errors.As(err, &refused) || refused.Error() != noTable || w.elapsed() != 0 {
				t.Errorf("%s returns %v after %v, want %q at once", name, err, w.elapsed(), noTable)
			}
		}
		synctest.Wait()
		s.refuses.Store(false)
		l, err := g.Lock(t.Context(), "job")
		if err != nil {
			t.Fatalf("after the repair of the store, Lock returns %v", err)
		}
		s.refuses.Store(true)
		var refused redis.Error
		if err := l.Unlock(t.Context()); !errors.As(err, &refused) || refused.Error() != noTable {
			t.Errorf("Unlock returns %v, want %q", err, noTable)
		}
	})
}

func TestObserverBacksOffWhileTheStoreIsMisconfigured(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.withStore()
		g, log := w.logged()
		s.refuses.Store(true)
		o, _ := observe(t, g)
		time.Sleep(10 * time.Minute)
		if n := s.asked.Load(); n < 20 || n > 70 {
			t.Errorf("the observer sent %d requests in ten minutes, want one each 20 s", n)
		}
		if got := log(); strings.Count(got, "the server refuses the observer") != 1 {
			t.Errorf("the log does not have one refusal:\n%s", got)
		}
		s.refuses.Store(false)
		w.client().take(t, "a", time.Minute)
		time.Sleep(30 * time.Second)
		if o.Owner().ID != "a" {
			t.Errorf("Owner of the observer returns %+v, want a", o.Owner())
		}
		if got := log(); !strings.Contains(got, "the server accepts the observer's queries again") {
			t.Errorf("the log does not say that the server accepts queries again:\n%s", got)
		}
	})
}
