package clienttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
	"github.com/simba-resp/simba-resp/client/registry"
	"github.com/simba-resp/simba-resp/script"
)

// A refusal reaches the caller or the log, and not both. Otherwise the client does what it can.
func TestRefusalOfEachCommandIsReportedOnce(t *testing.T) {
	for command, use := range map[string]func(t *testing.T, w *world, g *testClient) error{
		"simba.acquire": func(_ *testing.T, _ *world, g *testClient) error { _, err := g.Lock(bg, "job"); return err },
		"simba.guard": func(t *testing.T, w *world, g *testClient) error { // cannot renew
			l := w.lock(g)
			<-l.Context().Done()
			if err := l.Unlock(bg); !errors.Is(err, client.ErrLost) {
				t.Errorf("Unlock returns %v, want ErrLost", err)
			}
			return nil
		},
		"simba.guard after a wait": func(t *testing.T, w *world, g *testClient) error {
			w.client().take(t, "other", time.Minute)
			_, err := g.Lock(bg, "job")
			return err
		},
		"simba.guard of a lease that is renewed by hand": func(t *testing.T, w *world, g *testClient) error {
			l, err := g.Lock(bg, "job", client.WithoutRenewal())
			must(t, err)
			err = l.Renew(bg)
			w.unlock(l)
			return err
		},
		"simba.release": func(_ *testing.T, w *world, g *testClient) error { return w.lock(g).Unlock(bg) },
		"simba.release of Do": func(_ *testing.T, _ *world, g *testClient) error {
			return g.Do(bg, "job", func(context.Context) error { return nil })
		},
		"simba.release of a wait": func(t *testing.T, w *world, g *testClient) error {
			w.client().take(t, "other", time.Minute)
			b := w.waits(g)
			b.cancel()
			<-b.done
			return nil
		},
		"simba.release of Lead": func(_ *testing.T, _ *world, g *testClient) error {
			return lead(g, 10*time.Second)
		},
		"simba.check": func(_ *testing.T, _ *world, g *testClient) error { _, err := g.Check(bg, "job", 1); return err },
		"simba.check of a lease that is not renewed": func(t *testing.T, _ *world, g *testClient) error {
			l, err := g.Lock(bg, "job", client.WithoutRenewal())
			must(t, err)
			time.Sleep(5 * time.Second) // the owner has subscribed
			return l.Unlock(bg)
		},
		"simba.owner":            func(_ *testing.T, _ *world, g *testClient) error { _, err := g.Owner(bg, "job"); return err },
		"simba.owner of Watch":   watchMinute,
		"simba.history of Watch": watchMinute,
		"info of Watch":          watchMinute,
		"subscribe of Watch":     watchMinute,
		"subscribe of an owner": func(_ *testing.T, w *world, g *testClient) error {
			l := w.lock(g)
			time.Sleep(time.Minute)
			return l.Unlock(bg)
		},
		"simba.next of a waiter": waitMinute,
		"subscribe of a waiter":  waitMinute,
	} {
		t.Run(command, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				name, _, _ := strings.Cut(command, " ")
				w.allow(map[string]string{"bob": "~* +@all -" + name})
				g, log := w.loggedOf("bob")
				text := fmt.Sprint(use(t, w, g), "\n", log())
				if n := strings.Count(text, "NOPERM"); n != 1 || !strings.Contains(text, "'"+name+"' command") {
					t.Errorf("the error and the log report %d refusals, want one:\n%s", n, text)
				}
				_ = g.Close()
				w.users = nil
				w.restart() // so that the end of the world may release
			})
		})
	}
}

// watchMinute watches for a minute, and returns what Watch yields as errors.
func watchMinute(_ *testing.T, _ *world, g *testClient) (all error) {
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	for _, err := range g.Watch(ctx, "job") {
		all = errors.Join(all, err)
	}
	return all
}

// lead leads for some time, by tenures of five seconds.
func lead(g *testClient, d time.Duration) error {
	ctx, cancel := context.WithTimeout(bg, d)
	defer cancel()
	if err := g.Lead(ctx, "job", func(ctx context.Context) error {
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
		return nil
	}); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// A leader that may not release its mutex leads again when its lease has ended.
func TestLeaderThatMayNotReleaseLeadsAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.allow(map[string]string{"bob": "~* +@all -simba.release"})
		g := w.clientOf("bob", client.Options{})
		if err := lead(g, time.Minute); err != nil {
			t.Errorf("Lead returns %v, want the error of its context", err)
		}
		// The second ACQUIRE renews the lease of 12 s.
		if got := w.tenures("job"); len(got) != 4 {
			t.Errorf("the tenures are %v, want one in 17 s", got)
		}
		_ = g.Close()
		w.users = nil
		w.restart()
	})
}

func TestRightsOfTheGuideAreEnough(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/go-client.md")
	must(t, err)
	rights := regexp.MustCompile(`\+[a-z][a-z.|]*`).FindAllString(string(guide), -1)
	inWorld(t, func(t *testing.T, w *world) {
		w.allow(map[string]string{"bob": "~* " + strings.Join(rights, " ")})
		g, log := w.loggedOf("bob")
		got := []any{
			watchMinute(t, w, g), waitMinute(t, w, g), lead(g, 10*time.Second),
			g.Do(bg, "job", func(context.Context) error { time.Sleep(time.Minute); return nil }),
		}
		for _, o := range []client.Option{client.WithoutRenewal(), client.WithID("bob")} {
			l, err := g.Lock(bg, "job", o)
			must(t, err)
			time.Sleep(5 * time.Second)
			got = append(got, l.Unlock(bg))
		}
		w.client().take(t, "other", time.Hour)
		b := w.waits(g, client.WithID("bob"))
		b.cancel()
		<-b.done
		time.Sleep(time.Minute)
		_, err := g.Check(bg, "job", 1)
		if text := fmt.Sprint(append(got, err, log())...); strings.Contains(text, "NOPERM") {
			t.Errorf("with the rights %q: %s", rights, text)
		}
	})
}

// waitMinute waits for a minute, and unlocks. A waiter polls if it may use neither SIMBA.NEXT nor
// SUBSCRIBE.
func waitMinute(t *testing.T, w *world, g *testClient) error {
	other := w.client()
	other.take(t, "other", time.Hour)
	b := w.waits(g)
	time.Sleep(time.Minute)
	other.drop(t, "other")
	l := b.got(w, 0)
	time.Sleep(time.Minute)
	return l.Unlock(bg)
}

func TestWaiterThatMayNotListenPolls(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.allow(map[string]string{"bob": "~* +@all -subscribe -simba.next"})
		other := w.client()
		other.take(t, "other", time.Hour)
		g, log := w.loggedOf("bob")
		b := w.waits(g)
		time.Sleep(10 * time.Minute)
		other.drop(t, "other")
		w.unlock(b.got(w, time.Second))
		if got := log(); strings.Count(got, "NOPERM") != 2 {
			t.Errorf("the log does not have each refusal once:\n%s", got)
		}
	})
}

// It asks again after a minute.
func TestWaiterListensWhenTheServerAllowsIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.allow(map[string]string{"bob": "~* +@all -simba.next"})
		w.client().take(t, "other", time.Hour)
		g := w.clientOf("bob", client.Options{})
		w.waits(g).cancel()
		w.allow(map[string]string{"bob": "~* +@all"})
		time.Sleep(2 * time.Minute)
		w.waits(g)
		if n := w.client().calls(t)["simba.next"]; n == 0 {
			t.Error("the client sends no SIMBA.NEXT")
		}
	})
}

// After each failure the owner pauses longer, up to 2 s.
func TestChecksThatFailBackOff(t *testing.T) {
	for _, reply := range []error{io.ErrUnexpectedEOF, refusal("NOPERM no")} {
		t.Run(reply.Error(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				l, err := g.Lock(bg, "job", client.WithTTL(time.Hour), client.WithoutRenewal())
				must(t, err)
				time.Sleep(5 * time.Second) // the owner has subscribed
				n, end := g.countCommands(), g.refuse(reply)
				w.breakOff("job")
				time.Sleep(time.Minute)
				if sent := n.Load(); sent < 30 || sent > 40 {
					t.Errorf("the client has sent %d requests in a minute, want 30 to 40", sent)
				}
				end()
				<-l.Context().Done()
			})
		})
	}
}

// Neither may a refused SUBSCRIBE of one mutex make the owners of all others send requests.
func TestOwnerThatMayNotSubscribeRenewsAsUsual(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.allow(map[string]string{"bob": "~* +@all -subscribe"})
		g := w.clientOf("bob", client.Options{})
		_, err := g.Lock(bg, "long", client.WithTTL(time.Hour))
		must(t, err)
		for range 10 {
			must(t, g.Do(bg, "job", func(context.Context) error { time.Sleep(time.Second); return nil }))
		}
		if n := w.client().calls(t)["simba.guard"]; n != 0 {
			t.Errorf("the client has sent %d GUARDs, want none", n)
		}
	})
}

func TestLeaderBacksOffWhileTheStoreIsMisconfigured(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.withStore()
		g, log := w.logged()
		k := w.contendOver(g, "k")
		synctest.Wait()
		outage := func() { w.stop(); time.Sleep(time.Minute); w.begin() }
		s.refuses.Store(true)
		time.Sleep(5 * time.Minute)
		outage()
		time.Sleep(5 * time.Minute)
		if n := s.asked.Load(); n < 200 || n > 450 { // at first, then every 2 s with jitter
			t.Errorf("the contender sent %d requests in ten minutes, want one each 2 s", n)
		}
		// One for renewals, and one for the requests to acquire after the loss.
		if got := log(); strings.Count(got, "the server refuses the contender") != 2 || strings.Count(got, noTable) != 2 {
			t.Errorf("the log does not have two refusals with the cause:\n%s", got)
		}
		s.refuses.Store(false)
		time.Sleep(3 * time.Second)
		if !k.IsOwner() {
			t.Error("3 s after the repair of the store, the contender is not the owner")
		}
		if got := log(); strings.Count(got, "the server accepts the contender's requests again") != 1 {
			t.Errorf("the log does not say that the server accepts requests again:\n%s", got)
		}
	})
}

func TestOwnerKeepsItsLeaseIfTheStoreRecoversInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.withStore()
		k := w.contend("k", lease(10*time.Second, 10*time.Second)...)
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
		refuses := func(call string, err error) {
			t.Helper()
			var refused redis.Error
			if !errors.As(err, &refused) || refused.Error() != noTable || w.elapsed() != 0 {
				t.Errorf("%s returns %v after %v, want %q at once", call, err, w.elapsed(), noTable)
			}
		}
		_, err := g.Lock(bg, "job")
		refuses("Lock", err)
		_, err = g.TryLock(bg, "job")
		refuses("TryLock", err)
		refuses("Lead", g.Lead(bg, "job", func(context.Context) error { return nil }))
		synctest.Wait()
		s.refuses.Store(false)
		l := w.lock(g)
		s.refuses.Store(true)
		refuses("Unlock", l.Unlock(bg))
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
		"BUSY": func(_ *testing.T, _ *world, g *testClient) (end func()) {
			return g.refuse(refusal(script.ErrBusy))
		},
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
				w.unlock(w.lock(g))
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

// tooManyBlocked gets the text from ACQUIRE with WAIT. With VIA, ten times more may wait.
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
		if n.Load() != 3 {
			t.Errorf("the first Lock sends %d requests, want one for the user's name, a refused one and another", n.Load())
		}
		w.holds("job", 5*time.Second, time.Second, 0)
		if o := l.Owner(); time.Until(o.TTLAt) != 5*time.Second || time.Until(o.TransitionAt) != 6*time.Second {
			t.Errorf("the owner is %+v, want windows that end in 5 and 6 s", o)
		}
		time.Sleep(time.Minute)
		w.holds("job", 5*time.Second, time.Second, 4*time.Second)
		w.unlock(l)
		n.Store(0)
		l = w.lock(g)
		if n.Load() != 1 {
			t.Errorf("the second Lock sends %d requests, want 1", n.Load())
		}
		w.unlock(l)
		w.longest.Store(int64(3 * time.Second)) // the session was renegotiated
		l = w.lock(g)
		w.holds("job", 2500*time.Millisecond, 500*time.Millisecond, 0)
		w.unlock(l)
	})
}

func TestExplicitLeaseStaysAndIsAnErrorIfItIsTooLong(t *testing.T) {
	inShortWorld(t, func(t *testing.T, w *world) {
		for ttl, transition := range map[time.Duration]time.Duration{
			4 * time.Second: 0, 4500 * time.Millisecond: 1500 * time.Millisecond,
		} {
			l, err := w.client().TryLock(bg, "job", lease(ttl, transition)...)
			must(t, err)
			w.holds("job", ttl, transition, 0)
			w.unlock(l)
		}
		g := w.clientWith(client.Options{TTL: 10 * time.Second})
		for name, lock := range map[string]func() error{
			"Lock": func() error { _, err := g.Lock(bg, "job"); return err },
			"TryLock": func() error {
				_, err := w.client().TryLock(bg, "job", lease(6*time.Second, time.Second)...)
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
		d := w.recorder()
		k, err := contend.New(w.client().Client, "job", 0, d.acquired, d.released)
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
