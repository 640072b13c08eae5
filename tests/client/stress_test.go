package clienttest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
	"github.com/simba-resp/simba-resp/client/registry"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
	"github.com/simba-resp/simba-resp/tests/leaks"
)

var stressFor = flag.Duration("stress", time.Second, "how long TestRandomCallsLeaveNothing goes on")

// stress has a Client that eight goroutines use at random, and replace by a new Client.
type stress struct {
	t      *testing.T
	addr   string
	inside [4]atomic.Int32 // goroutines that work under each mutex; the last one is of the registry

	mu  sync.Mutex // guards the fields below
	rdb *redis.Client
	c   *client.Client
	all []*contend.Contender
	sch []*contend.Scheduler
	reg *registry.Registry
}

// begin makes a new Client, and values that use it.
func (s *stress) begin() {
	must := func(err error) {
		if err != nil {
			s.t.Error(err)
		}
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true, DisableIdentity: true})
	var err error
	s.c, err = client.New(s.rdb, client.Options{Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	must(err)
	s.all, s.sch = nil, nil
	for i := range len(s.inside) - 1 {
		k, err := contend.New(s.c, s.mutex(i), 0, func(ctx context.Context) { s.work(ctx, i) }, nil)
		must(err)
		sch, err := contend.NewScheduler(s.c, s.mutex(i), client.Schedule{Period: time.Millisecond}, func(ctx context.Context) error { s.work(ctx, i); return nil })
		must(err)
		s.all, s.sch = append(s.all, k), append(s.sch, sch)
	}
	s.reg, err = registry.New(s.c, registry.Config{Prefix: "spring"})
	must(err)
}

func (s *stress) mutex(i int) string { return fmt.Sprint("job", i) }

// work fails the test if another goroutine works under the same mutex. Leases are long, so none
// expires.
func (s *stress) work(ctx context.Context, i int) {
	if ctx.Err() != nil { // the context ended before the work began
		return
	}
	if s.inside[i].Add(1) != 1 {
		s.t.Errorf("two goroutines work under %s at the same time", s.mutex(i))
	}
	time.Sleep(rand.N(200 * time.Microsecond))
	s.inside[i].Add(-1)
}

func (s *stress) once() {
	s.mu.Lock()
	i := rand.IntN(len(s.inside) - 1)
	c, k, sch, reg := s.c, s.all[i], s.sch[i], s.reg
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), rand.N(5*time.Millisecond))
	defer cancel()
	work := func(ctx context.Context) error { s.work(ctx, i); return nil }
	var err error
	switch rand.IntN(20) {
	case 0:
		err = k.Start()
	case 1:
		err = k.Stop(ctx)
	case 2:
		err = k.Run(ctx)
	case 3:
		k.Resign()
	case 4:
		err = sch.Start()
	case 5:
		err = sch.Stop(ctx)
	case 6:
		err = sch.Run(ctx)
	case 7, 8, 9:
		err = c.Lead(ctx, s.mutex(i), func(ctx context.Context) error {
			s.work(ctx, i)
			if rand.IntN(2) == 0 {
				return client.Final(nil)
			}
			return nil
		})
	case 10:
		err = c.Every(ctx, s.mutex(i), client.Schedule{Period: time.Millisecond}, work)
	case 11, 12:
		for _, err = range c.Watch(ctx, s.mutex(i)) {
			if rand.IntN(10) == 0 {
				break
			}
		}
	case 13:
		err = c.TryDo(ctx, s.mutex(i), work)
	case 14, 15:
		err = c.Do(ctx, s.mutex(i), work)
	case 16:
		var l *client.Lock
		if l, err = c.Lock(ctx, s.mutex(i)); err == nil {
			s.work(l.Context(), i)
			cancel()
			_ = l.Unlock(ctx)
			err = l.Unlock(context.Background())
		}
	case 17:
		l, h := reg.Obtain("x"), reg.NewHolder()
		if err = l.Lock(ctx, h); err == nil {
			s.work(l.Context(h), len(s.inside)-1)
			err = errors.Join(l.Lock(context.Background(), h), l.Unlock(context.Background(), h), l.Unlock(ctx, h))
		}
	case 18:
		_, err = c.Check(ctx, s.mutex(i), 1)
	case 19:
		if rand.IntN(50) == 0 {
			s.renew(rand.IntN(2) == 0)
		}
	}
	switch {
	case err == nil, errors.Is(err, client.ErrInUse), errors.Is(err, client.ErrClosed), errors.Is(err, client.ErrNotAcquired), ctx.Err() != nil && errors.Is(err, ctx.Err()):
	default:
		s.t.Error(err)
	}
}

// renew closes the Client and makes a new one.
func (s *stress) renew(registry bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(registry)
	s.begin()
}

func (s *stress) end(registry bool) {
	if registry {
		if err := s.reg.Close(); err != nil {
			s.t.Error(err)
		}
	}
	if err := s.c.Close(); err != nil {
		s.t.Error(err)
	}
	if err := s.rdb.Close(); err != nil {
		s.t.Error(err)
	}
}

func TestRandomCallsLeaveNothing(t *testing.T) {
	addr, e := realServer(t)
	before := goleak.IgnoreCurrent()
	s := &stress{t: t, addr: addr}
	s.begin()
	over := time.Now().Add(*stressFor)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for time.Now().Before(over) && !t.Failed() {
				s.once()
			}
		})
	}
	all.Wait()
	s.end(false)
	page, _, err := e.Scan(t.Context(), simba.ScanRequest{Count: 1000})
	if err != nil || len(page.Mutexes) > 0 {
		t.Errorf("at the end the server has the mutexes %v, %v, want none", page.Mutexes, err)
	}
	must(t, leaks.Find(before))
}

// The client must log a loss during Unlock, but no loss because of Unlock.
func TestUnlockDoesNotLogALoss(t *testing.T) {
	addr, e := realServer(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true})
	defer rdb.Close()
	lost := make(chan string, 1000)
	c, err := client.New(rdb, client.Options{Timeout: time.Minute, Logger: slog.New(hookHandler{slog.DiscardHandler, func(m string) { lost <- m }})})
	must(t, err)
	defer c.Close()
	for i := range 1000 {
		l, err := c.Lock(bg, "job")
		must(t, err)
		broken := i%2 == 0
		if broken {
			_, seq, err := e.Break(bg, "job", "the test")
			must(t, err)
			must(t, e.Commit(seq))
		}
		if err := l.Unlock(bg); errors.Is(err, client.ErrLost) != broken || !broken && err != nil {
			t.Fatalf("lock %d (broken: %v): Unlock returns %v", i, broken, err)
		}
		for len(lost) > 0 {
			if m := <-lost; !broken { // the notice of a break may come before Unlock
				t.Fatalf("lock %d: the log has %q, but the lock was not lost", i, m)
			}
		}
	}
}

// realServer returns the address of a server in this process, and its engine.
func realServer(b testing.TB) (addr string, _ *engine.Engine) {
	b.Helper()
	quiet := slog.New(slog.DiscardHandler)
	broker := resp.NewBroker()
	e, err := engine.New(engine.Config{
		Clock: engine.NewClock(0), HandoffWindow: time.Second, QueueGrace: 5 * time.Second, Notices: commands.Notices(broker),
	}, engine.Memory(), engine.Recovery{})
	must(b, err)
	x := commands.New(commands.Config{Backend: e, Logger: quiet})
	server := resp.NewServer(resp.Config{Committer: e, Broker: broker, Logger: quiet}, x)
	x.Attach(server)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(ln) })
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			b.Error(err)
		}
		served.Wait()
		e.Stop()
	})
	// From the first reply on, the server has all its goroutines. Tests look for those that stay.
	rdb := redis.NewClient(&redis.Options{Addr: ln.Addr().String()})
	defer rdb.Close()
	must(b, rdb.Ping(bg).Err())
	return ln.Addr().String(), e
}
