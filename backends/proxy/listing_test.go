package proxy

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
)

// lister is a Queue without waiters. The test lists its mutexes.
type lister struct{ *memoryStore }

func (lister) Leave(context.Context, string, string, bool) error { return nil }
func (lister) Unblock(context.Context, string, string) error     { return nil }
func (lister) Listen(string)                                     {}
func (lister) WatchAll(bool)                                     {}
func (lister) Waiters(context.Context, string, int) ([]simba.QueueEntry, error) {
	return nil, nil
}

type patterns struct {
	*conformance.Broker
	subscribed atomic.Bool
}

func (p *patterns) SubscribedPattern(string) bool { return p.subscribed.Load() }

// A pattern subscriber leaves before the first list of the mutexes has been read.
func TestLateListOfMutexesLeavesNothingWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lister{newMemory().store().(*memoryStore)}
		subscribers := &patterns{Broker: conformance.NewBroker()}
		e, err := Open(t.Context(), Options{Notices: subscribers}, s)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		watched := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.watched["m"]
		}
		subscribers.subscribed.Store(true)
		if _, err := e.Subscribed(t.Context(), "simba:*", true); err == nil {
			t.Error("the subscription has not waited for the list")
		}
		subscribers.subscribed.Store(false)
		time.Sleep(cleanUpInterval + tableInterval)
		e.listed([]string{"m"}, true)
		if !watched() {
			t.Error("the listed mutex is not watched")
		}
		time.Sleep(cleanUpInterval + tableInterval)
		if watched() {
			t.Error("the mutex is still watched")
		}
	})
}

// lane is a Queue with one waiter, w. The mutex has an owner until it is free.
type lane struct {
	lister
	free atomic.Bool
	slow time.Duration // how long Take lasts for any other contender
}

func (l *lane) Take(_ context.Context, _ string, to *Lease) (Taking, State, error) {
	if to.Owner != "w" {
		time.Sleep(l.slow)
	}
	return Held, State{}, nil
}

func (*lane) Renew(context.Context, string, *Lease) (bool, error) { return false, nil }

func (l *lane) Read(context.Context, string, bool) (State, error) {
	if l.free.Load() {
		return State{Next: "w", Waiters: 1}, nil
	}
	return State{Owner: "o", Token: 1, Live: true, TransitionAt: 3_600_000, Elsewhere: true}, nil
}

func (l *lane) Pass(_ context.Context, _ string, _ From, to *Lease) (uint64, bool, error) {
	to.Token = 2
	l.free.Store(false)
	return 0, true, nil
}

// A request that grants nothing reads a mutex just before the refresh that follows a notice.
func TestRequestDoesNotTakeANoticeFromTheRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 10 {
			l := &lane{lister: lister{newMemory().store().(*memoryStore)}}
			e, err := Open(t.Context(), Options{Notices: conformance.NewBroker()}, l)
			if err != nil {
				t.Fatal(err)
			}
			w := conformance.Block(t, e, "m", "w", time.Minute)
			synctest.Wait()
			l.free.Store(true)
			m := e.ref("m")
			e.mu.Lock()
			m.stale = true // as Changed does while runDue is about to end
			e.mu.Unlock()
			if _, err := e.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "z", TTL: time.Minute}); err != nil {
				t.Error(err)
			}
			e.unref(m)
			synctest.Wait()
			select {
			case <-w.Woken:
			default:
				t.Error("the first waiter waits on, although the mutex is free")
			}
			e.Close()
		}
	})
}

func TestNewWaitersDoNotDelayTheFirstOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lane{lister: lister{newMemory().store().(*memoryStore)}, slow: 50 * time.Millisecond}
		e, err := Open(t.Context(), Options{Notices: conformance.NewBroker()}, l)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		w := conformance.Block(t, e, "m", "w", time.Minute)
		synctest.Wait()
		for i := range 10 {
			go func() {
				_, _, _ = e.Acquire(t.Context(), simba.AcquireRequest{Mutex: "m", Contender: fmt.Sprint(i), TTL: time.Minute, Waiter: conformance.NewBlocked()})
			}()
		}
		synctest.Wait()
		l.free.Store(true)
		e.changed("m")
		time.Sleep(2 * l.slow)
		select {
		case <-w.Woken:
		default:
			t.Error("the first waiter waits for the requests of later ones")
		}
		time.Sleep(time.Second)
	})
}

// still is a Queue whose mutexes stay as they are.
type still struct {
	lister
	state State
	reads atomic.Int64
}

func (s *still) Read(context.Context, string, bool) (State, error) {
	s.reads.Add(1)
	return s.state, nil
}

func TestUnchangedMutexOfAQueueIsReadSeldom(t *testing.T) {
	for name, test := range map[string]struct {
		state State
		most  int64 // reads in a minute
	}{
		"free":                        {State{}, 10},
		"lease of a dead server over": {State{Owner: "o", Token: 1, Live: true, Elsewhere: true}, 300},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &still{lister: lister{newMemory().store().(*memoryStore)}, state: test.state}
				e, err := Open(t.Context(), Options{Notices: conformance.NewBroker("simba:{m}")}, q)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				if _, err := e.Subscribed(t.Context(), "simba:{m}", false); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if n := q.reads.Load(); n > test.most {
					t.Errorf("%d reads in a minute, want at most %d", n, test.most)
				}
			})
		})
	}
}

// remote is a Queue whose mutex has an owner at another server.
type remote struct {
	still
	inspected atomic.Int64
}

func (r *remote) Renew(ctx context.Context, _ string, l *Lease) (bool, error) {
	answers := Answers(ctx)
	if _, ok := answers.LoadAndDelete("guard"); ok {
		l.Token = 1
		return true, nil
	}
	r.inspected.Add(1)
	return false, &Elsewhere{Ask: func(context.Context) error {
		answers.Store("guard", true)
		return nil
	}}
}

func TestGuardElsewhereAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{still: still{lister: lister{newMemory().store().(*memoryStore)}}}
		e, err := Open(t.Context(), Options{Notices: conformance.NewBroker()}, r)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		e.Events.Record(simba.Event{Kind: simba.EventAcquired, Mutex: "m", Owner: "o", Token: 1})
		conformance.Renew(t, e, "m", "o", time.Minute)
		if n := r.inspected.Load(); n != 1 {
			t.Errorf("the store has looked for the owner %d times, want once", n)
		}
	})
}

// Take is slow and grants nothing.
func (r *remote) Take(context.Context, string, *Lease) (Taking, State, error) {
	time.Sleep(50 * time.Millisecond)
	return Held, r.state, nil
}

func TestGuardElsewhereDoesNotWaitForOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := State{Owner: "o", Token: 1, Live: true, TransitionAt: 3_600_000, Elsewhere: true}
		r := &remote{still: still{lister: lister{newMemory().store().(*memoryStore)}, state: state}}
		e, err := Open(t.Context(), Options{Notices: conformance.NewBroker("simba:{m}")}, r)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if _, err := e.Subscribed(t.Context(), "simba:{m}", false); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			go func() {
				_, _, _ = e.Acquire(t.Context(), simba.AcquireRequest{Mutex: "m", Contender: fmt.Sprint(i), TTL: time.Minute, NoQueue: true})
			}()
		}
		synctest.Wait()
		began := time.Now()
		conformance.Renew(t, e, "m", "o", time.Minute)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("GUARD took %v", took)
		}
		time.Sleep(time.Second)
	})
}

// asker is a Queue whose Take needs another server.
type asker struct {
	lister
	asked bool
	seen  func()
}

func (a *asker) Take(ctx context.Context, mutex string, l *Lease) (Taking, State, error) {
	if a.asked {
		s, _ := a.Read(ctx, mutex, true)
		l.Token, l.Mark, l.Elsewhere = s.Token, s.Mark, true
		return Granted, State{}, nil
	}
	return Held, State{}, &Elsewhere{Ask: func(ctx context.Context) error {
		w := *l
		if _, _, err := a.memoryStore.Take(ctx, mutex, &w); err != nil {
			return err
		}
		a.asked = true
		a.seen()
		return nil
	}}
}

// A refresh sees the tenure that another server has begun before its answer has arrived.
func TestGrantOfAnotherServerIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &asker{lister: lister{newMemory().store().(*memoryStore)}, seen: func() {}}
		e, err := Open(t.Context(), Options{Notices: conformance.NewBroker(simba.MutexChannel("m"))}, s)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if _, err := e.Subscribed(t.Context(), simba.MutexChannel("m"), false); err != nil {
			t.Fatal(err)
		}
		s.seen = func() {
			e.changed("m")
			time.Sleep(100 * time.Millisecond)
		}
		o, _, err := e.Acquire(t.Context(), request("m", "a", long))
		if err != nil || o.Status != simba.StatusAcquired {
			t.Fatalf("%+v, %v", o, err)
		}
		if n := e.Stats().Acquired; n != 1 {
			t.Errorf("%d tenures acquired, want 1", n)
		}
	})
}

// placed is a Queue with a blocked waiter of this server that is next.
type placed struct {
	lister
	granted bool
}

func (p *placed) Take(ctx context.Context, mutex string, l *Lease) (Taking, State, error) {
	if l.Queueing == Blocks {
		return Held, State{}, nil
	}
	s, _ := p.Read(ctx, mutex, false)
	return Held, s, nil
}

func (p *placed) Read(context.Context, string, bool) (State, error) {
	position := func(contender string) int {
		if contender == "p" && p.granted {
			return 1
		} else if contender == "p" {
			return 2
		}
		return 0
	}
	if p.granted {
		return State{Owner: "b", Token: 7, Live: true, TTLAt: 1000, TransitionAt: 1000, Waiters: 1, Position: position}, nil
	}
	return State{Next: "b", NextOwns: true, Waiters: 2, Position: position}, nil
}

func (p *placed) Pass(_ context.Context, _ string, _ From, to *Lease) (uint64, bool, error) {
	to.Token, p.granted = 7, true
	return 0, true, nil
}

// openPlaced opens an Engine that serves the waiters of m only in requests, not by its timer.
func openPlaced(t *testing.T) (*Engine, *mutexState) {
	e, err := Open(t.Context(), Options{Notices: conformance.NewBroker()}, &placed{lister: lister{newMemory().store().(*memoryStore)}})
	if err != nil {
		t.Fatal(err)
	}
	m := e.ref("m")
	m.running = true
	return e, m
}

// A polling ACQUIRE grants the free mutex to a blocked waiter of this server.
func TestPollingWaiterHasAPositionAfterItServesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := openPlaced(t)
		defer e.Close()
		conformance.Block(t, e, "m", "b", long)
		o, _, err := e.Acquire(t.Context(), request("m", "p", long))
		if err != nil || o.Status != simba.StatusQueued || o.Position != 1 || o.Owner != "b" {
			t.Errorf("%+v, %v; want queued, position 1, owner b", o, err)
		}
		m.running = false
		e.unref(m)
	})
}

// Other servers may have reported the next waiter as the owner before this server has granted it.
func TestReadsFindAWaiterThatOtherServersSeeAsTheOwner(t *testing.T) {
	for name, ask := range map[string]func(e *Engine) error{
		"OWNER": func(e *Engine) error {
			if o, _, err := e.Owner(context.Background(), "m"); err != nil || o.Owner != "b" {
				return fmt.Errorf("%+v, %w", o, err)
			}
			return nil
		},
		"CHECK": func(e *Engine) error {
			if ok, _, err := e.Check(context.Background(), "m", 7); err != nil || !ok {
				return fmt.Errorf("%v, %w", ok, err)
			}
			return nil
		},
		"GUARD": func(e *Engine) error {
			if o, err := e.Guard(context.Background(), simba.GuardRequest{Mutex: "m", Contender: "p", TTL: long}); err != nil || o.Owner != "b" {
				return fmt.Errorf("%+v, %w", o, err)
			}
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, m := openPlaced(t)
			defer e.Close()
			b := conformance.Block(t, e, "m", "b", long)
			if err := ask(e); err != nil {
				t.Errorf("%s: %v; want b as the owner", name, err)
			}
			b.Granted(t)
			m.running = false
			e.unref(m)
		})
	}
}
