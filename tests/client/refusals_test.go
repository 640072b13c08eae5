package clienttest

import (
	"bufio"
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
	"github.com/simba-resp/simba-resp/client/registry"
	"github.com/simba-resp/simba-resp/client/worker"
	"github.com/simba-resp/simba-resp/script"
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

// The client recognizes temporary errors by their texts, so this test gets the texts from the
// server.
func TestLockWaitsOnAfterTemporaryErrorsOfTheServer(t *testing.T) {
	for text, begin := range map[string]func(*testing.T, *world, *testClient) (end func()){
		"TRYAGAIN":                          unavailableStore,
		"OOM":                               fullMemory,
		"ERR max number of clients reached": tooManyClients,
		"ERR max number of blocked clients reached": tooManyBlocked,
		"UNBLOCKED": unblocked,
		"BUSY":      busy,
	} {
		t.Run(text, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				end := begin(t, w, g)
				at := w.elapsed()
				ctx, cancel := context.WithTimeout(bg, time.Minute)
				defer cancel()
				_, err := g.Lock(ctx, "job")
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), text) {
					t.Errorf("after %v Lock returns %v, want %q", w.elapsed()-at, err, text)
				}
				end()
				l, err := g.Lock(bg, "job")
				must(t, err)
				w.unlock(l)
			})
		})
	}
}

func unavailableStore(_ *testing.T, w *world, _ *testClient) (end func()) {
	s := w.withStore()
	s.err = errors.New("engine redis unavailable: i/o timeout")
	s.refuses.Store(true)
	return func() { s.refuses.Store(false) }
}

func fullMemory(t *testing.T, w *world, _ *testClient) (end func()) {
	w.occupy(t, "other")
	w.commands.SetMaxMemory(1)
	return func() { w.commands.SetMaxMemory(0) }
}

// tooManyClients gets the text from the server, and a hook refuses requests with it. On a wire,
// go-redis would find the connection closed before it reads the reply.
func tooManyClients(t *testing.T, w *world, g *testClient) (end func()) {
	before := w.server.MaxClients()
	defer w.server.SetMaxClients(before)
	w.server.SetMaxClients(0)
	nc, err := w.client().dial(bg, "", "")
	must(t, err)
	defer nc.Close()
	line, err := bufio.NewReader(nc).ReadString('\n')
	must(t, err)
	return g.refuse(refusal(strings.Trim(line, "-\r\n")))
}

// tooManyBlocked gets the text from ACQUIRE with WAIT, which the client itself does not send.
func tooManyBlocked(t *testing.T, w *world, g *testClient) (end func()) {
	w.occupy(t, "other")
	before := w.server.MaxClients()
	defer w.server.SetMaxClients(before)
	a, b := w.client(), w.client()
	must(t, b.rdb.Ping(bg).Err()) // connects
	_, blocked := a.wait(t, "other")
	w.server.SetMaxClients(1)
	_, reply := b.wait(t, "other")
	w.breakOff("other")
	must(t, <-blocked)
	return g.refuse(<-reply)
}

func unblocked(t *testing.T, w *world, g *testClient) (end func()) {
	w.occupy(t, "other")
	id, reply := w.client().wait(t, "other")
	must(t, w.client().rdb.Do(bg, "client", "unblock", id, "error").Err())
	return g.refuse(<-reply)
}

func busy(_ *testing.T, _ *world, g *testClient) (end func()) {
	return g.refuse(refusal(script.ErrBusy))
}

func (w *world) occupy(t *testing.T, mutex string) {
	t.Helper()
	_, err := w.client().acquire(bg, mutex, "owner", time.Hour)
	must(t, err)
}

// wait sends an ACQUIRE that blocks until the mutex is free. It returns the connection's id and the
// reply's error.
func (g *testClient) wait(t *testing.T, mutex string) (id int64, reply <-chan error) {
	t.Helper()
	conn := g.rdb.Conn()
	id, err := conn.ClientID(bg).Result()
	must(t, err)
	c := make(chan error, 1)
	go func() {
		c <- conn.Do(bg, "simba.acquire", mutex, "waiter", 60_000, "wait", 0).Err()
		_ = conn.Close()
	}()
	synctest.Wait()
	return id, c
}

// refuse makes each request of the client fail with an error reply until the test calls end.
func (g *testClient) refuse(reply error) (end func()) {
	over := new(atomic.Bool)
	g.rdb.AddHook(refusing{reply, over})
	return func() { over.Store(true) }
}

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
