package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
)

// world is one server on a store in memory, in fake time. Its helpers fail the test on an error.
type world struct {
	*testing.T
	*Engine
	data   *memory
	broker *conformance.Broker
}

const long = time.Hour

// inWorld runs a test. channels are those that a client subscribes to.
func inWorld(t *testing.T, channels []string, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, data: newMemory(), broker: conformance.NewBroker(channels...)}
		w.Engine = engineOn(t, w.data, func(o *Options) { o.Notices = w.broker })
		test(t, w)
	})
}

// another starts another server on the store.
func (w *world) another() *world {
	return &world{T: w.T, Engine: engineOn(w.T, w.data, nil), data: w.data}
}

func request(mutex, contender string, ttl time.Duration) simba.AcquireRequest {
	return simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl}
}

func (w *world) acquire(r simba.AcquireRequest, want simba.Status) simba.Outcome {
	w.Helper()
	o, _, err := w.Acquire(w.Context(), r)
	if err != nil || o.Status != want {
		w.Fatalf("ACQUIRE of %s: %+v, %v; want %v", r.Contender, o, err, want)
	}
	return o
}

func (w *world) release(mutex, contender string, token uint64) bool {
	w.Helper()
	ok, _, err := w.Release(w.Context(), simba.ReleaseRequest{Mutex: mutex, Contender: contender, Token: token})
	if err != nil {
		w.Fatalf("RELEASE of %s: %v; want no error", contender, err)
	}
	return ok
}

func (w *world) owner(mutex string) string {
	w.Helper()
	o, _, err := w.Owner(w.Context(), mutex)
	if err != nil {
		w.Fatalf("OWNER: %v; want no error", err)
	}
	return o.Owner
}

func (w *world) history(mutex string) (list []string) {
	for _, e := range w.Events.Find(simba.HistoryRequest{Mutex: mutex, Count: 100}) {
		list = append(list, e.Kind.String()+" "+e.Owner)
	}
	return list
}

// set changes what the store does.
func (d *memory) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// lock locks a mutex in the store, as another transaction does, for a while.
func (d *memory) lock(mutex string, during time.Duration) {
	d.set(func() { d.lockLocked(mutex, during) })
}

func (d *memory) lockLocked(mutex string, during time.Duration) {
	unlocked := make(chan struct{})
	d.locked[mutex] = unlocked
	time.AfterFunc(during, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.locked, mutex)
		close(unlocked)
	})
}

func isUnavailable(err error) bool { return errors.As(err, new(*simba.UnavailableError)) }

// A waiter gets the mutex by another request, which asked for a shorter lease.
func TestWaiterHasTheLeaseOfItsOtherRequest(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		b := conformance.Block(t, w, "m", "b", long)
		other := w.another()
		other.release("m", "a", 0)
		o := other.acquire(request("m", "b", time.Minute), simba.StatusAcquired)
		w.changed("m")
		if o := b.Granted(t); o.TTL > time.Minute {
			t.Errorf("the end of the wait: %+v; want the lease of the other request", o)
		}
		if err := w.Engine.Waiters.ender.HandOff(b.Ticket.(*Ticket), Grant{Token: o.Token}); err != nil || w.owner("m") != "b" {
			t.Errorf("a waiter that is gone gives up the lease of its other request")
		}
	})
}

// The reply to the read that ends a wait is late. The waiter's lease, which the contender has by a
// request to another server, runs meanwhile.
func TestLeaseFoundAtTheEndOfAWaitEndsNoLaterThanInTheStore(t *testing.T) {
	for name, why := range map[string]simba.EndReason{"woken": simba.EndWoken, "timed out": simba.EndTimeout} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.acquire(request("m", "a", long), simba.StatusAcquired)
				b := conformance.Block(t, w, "m", "b", long)
				other := w.another()
				other.release("m", "a", 0)
				r := request("m", "b", time.Minute)
				r.Transition = time.Minute
				other.acquire(r, simba.StatusAcquired)
				if why == simba.EndWoken {
					w.changed("m")
					<-b.Woken
				}
				w.data.slowly("Read", 2*time.Second)
				began := time.Now()
				o, err := b.Ticket.End(why)
				want := time.Minute - time.Since(began)
				if err != nil || o.Status != simba.StatusAcquired || o.TTL != want || o.Transition != want+time.Minute {
					t.Errorf("the end of the wait: %+v, %v; want acquired, %v + 60 s before the end of the lease", o, err, want)
				}
			})
		})
	}
}

func TestBlockedWaitersAreServedInOrder(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "0", long), simba.StatusAcquired)
		for i := 1; i < 5; i++ {
			conformance.Block(t, w, "m", fmt.Sprint(i), long)
		}
		for i := range 5 {
			if o := w.owner("m"); o != fmt.Sprint(i) {
				t.Fatalf("the owner is %s, want %d", o, i)
			}
			w.release("m", fmt.Sprint(i), 0)
		}
	})
}

// A polling waiter has the mutex reserved for the handoff window. Then the next contender may take
// it.
func TestReservationOfAPollingWaiterEnds(t *testing.T) {
	inWorld(t, []string{simba.ContenderChannel("m", "b")}, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		w.acquire(request("m", "b", long), simba.StatusQueued)
		w.release("m", "a", 0)
		if n := w.broker.Count(simba.ContenderChannel("m", "b"), simba.ReleasedNotice("a")); n != 1 {
			t.Errorf("b was notified %d times, want once", n)
		}
		noQueue := request("m", "c", long)
		noQueue.NoQueue = true
		if o := w.acquire(noQueue, simba.StatusBusy); o.Transition != time.Second {
			t.Errorf("ACQUIRE during the reservation: %+v; want a transition of 1 s", o)
		}
		time.Sleep(time.Second)
		w.acquire(noQueue, simba.StatusAcquired)
	})
}

// The waiter for which the mutex is reserved comes back with WAIT.
func TestReservedWaiterMayAcquireWithWait(t *testing.T) {
	inWorld(t, []string{simba.ContenderChannel("m", "b")}, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		w.acquire(request("m", "b", long), simba.StatusQueued)
		w.release("m", "a", 0)
		r := request("m", "b", long)
		r.Waiter = make(wakes, 1)
		w.acquire(r, simba.StatusAcquired)
	})
}

func TestRefusedStoreBeginsNoTenure(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		refuse := func(f ...Fault) {
			w.data.set(func() { w.data.refuse = f })
			time.Sleep(checkPause)
			w.Checks.Again()
			time.Sleep(2 * checkPause)
		}
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		b := conformance.Block(t, w, "m", "b", long)
		refuse(Fault{Setting: "s", Text: "s is unsafe", Refused: true})
		<-b.Woken
		w.acquire(request("m", "a", long), simba.StatusRenewed)
		w.release("m", "a", 0)
		if _, err := b.Ticket.End(simba.EndWoken); !isRefusal(err) {
			t.Errorf("the end of the wait: %v; want a MisconfiguredError", err)
		}
		r := request("m", "c", long)
		r.Waiter = make(wakes, 1)
		for _, r := range []simba.AcquireRequest{request("m", "c", long), r} {
			if _, _, err := w.Acquire(t.Context(), r); !isRefusal(err) {
				t.Errorf("ACQUIRE: %v; want a MisconfiguredError", err)
			}
		}
		if o := w.owner("m"); o != "" {
			t.Errorf("the owner is %s, want none", o)
		}
		refuse()
		w.acquire(request("m", "c", long), simba.StatusAcquired)
	})
}

// The owner's lease is long, and its request is refused. So the engine checks the store at once.
func TestRefusedRequestEndsAllWaits(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		b := conformance.Block(t, w, "m", "b", long)
		w.data.mu.Lock()
		w.data.refuse = []Fault{{Text: "the data is gone", Refused: true}}
		w.data.harm = &simba.MisconfiguredError{Engine: "memory", Err: w.data.refuse[0]}
		w.data.mu.Unlock()
		if _, err := w.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long}); !isRefusal(err) {
			t.Errorf("GUARD: %v; want a MisconfiguredError", err)
		}
		began := time.Now()
		<-b.Woken
		if _, err := b.Ticket.End(simba.EndWoken); !isRefusal(err) || time.Since(began) > 2*time.Second {
			t.Errorf("the end of the wait after %v: %v; want a MisconfiguredError within 2 s", time.Since(began), err)
		}
	})
}

// The reply to the grant is lost, so the server does not know the token.
func TestSessionEndsALeaseOfUnknownOutcome(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		r := request("m", "a", long)
		r.Session = 7
		w.acquire(r, simba.StatusAcquired)
		ended := func(session uint64) bool {
			ok, _, err := w.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a", Session: session})
			return ok && err == nil
		}
		if ended(8) || !ended(7) {
			t.Error("another session ended the lease, or its own did not")
		}
		w.data.loseNextReply("m")
		if _, _, err := w.Acquire(t.Context(), r); !isUnavailable(err) {
			t.Fatalf("ACQUIRE whose reply is lost: %v; want an UnavailableError", err)
		}
		if w.owner("m") != "a" || !ended(7) || w.owner("m") != "" {
			t.Error("the end of the session did not end the lease")
		}
	})
}

// The lease of a session expires, and its client may ask for it before the connection ends.
func TestSessionOfAnExpiredLeaseIsForgotten(t *testing.T) {
	for _, asks := range []bool{false, true} {
		inWorld(t, nil, func(t *testing.T, w *world) {
			r := request("m", "a", time.Second)
			r.Session = 7
			w.acquire(r, simba.StatusAcquired)
			time.Sleep(2 * time.Second)
			var err error
			if asks {
				_, err = w.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: time.Second})
			} else {
				_, _, err = w.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a", Session: 7})
			}
			if err != nil || len(w.sessions) > 0 {
				t.Errorf("the server still has %d sessions, %v; want none (the client asks: %v)", len(w.sessions), err, asks)
			}
		})
	}
}

// A blocking ACQUIRE with SESSION gets the free mutex at once, but the reply is lost.
func TestSessionEndsALeaseOfUnknownOutcomeOfABlockedRequest(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		r := request("m", "a", long)
		r.Session = 7
		r.Waiter = make(wakes, 1)
		w.data.loseNextReply("m")
		if _, _, err := w.Acquire(t.Context(), r); !isUnavailable(err) {
			t.Fatalf("ACQUIRE whose reply is lost: %v; want an UnavailableError", err)
		}
		ok, _, err := w.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a", Session: 7})
		if !ok || err != nil || w.owner("m") != "" {
			t.Errorf("the end of the session: %v, %v, owner %q; want the lease ended", ok, err, w.owner("m"))
		}
	})
}

func TestSessionEndsALeaseThatGuardRenewed(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inWorld(t, nil, func(t *testing.T, w *world) {
			r := request("m", "a", long)
			r.Session = 7
			w.acquire(r, simba.StatusAcquired)
			if lost {
				w.data.loseNextReply("m")
			}
			if _, err := w.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long}); isUnavailable(err) != lost {
				t.Fatalf("GUARD: %v", err)
			}
			ok, _, err := w.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a", Session: 7})
			if !ok || err != nil {
				t.Errorf("the end of the session after GUARD, its reply lost %v: %v, %v; want true", lost, ok, err)
			}
		})
	}
}

// loseNextReply loses the reply to the next step that changes a mutex.
func (d *memory) loseNextReply(mutex string) {
	d.set(func() { d.loses = mutex })
}

// The history has the end of a tenure before the beginning of the next one, and says how it ended.
func TestHistoryHasUnseenEndsInOrder(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		other := w.another()
		w.acquire(request("m", "a", time.Second), simba.StatusAcquired)
		time.Sleep(2 * time.Second)
		w.acquire(request("m", "b", long), simba.StatusAcquired)
		other.release("m", "b", 0)
		w.acquire(request("m", "c", long), simba.StatusAcquired)
		want := []string{"acquired a", "expired a", "acquired b", "released b", "acquired c"}
		if got := w.history("m"); !slices.Equal(got, want) {
			t.Errorf("the history is %q, want %q", got, want)
		}
	})
}

// The owner's requests run before those of others that came earlier.
func TestOwnersRenewalRunsBeforeOtherRequests(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "owner", long), simba.StatusAcquired)
		w.data.lock("m", 1500*time.Millisecond)
		const others = 20
		var before atomic.Int64
		var all sync.WaitGroup
		for i := range others {
			all.Go(func() {
				g, err := w.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: fmt.Sprint(i), TTL: long})
				if err != nil || g.Owner != "owner" {
					t.Errorf("GUARD of another: %+v, %v; want the owner in the reply", g, err)
				}
				if g.TTL <= long {
					before.Add(1)
				}
			})
		}
		synctest.Wait()
		conformance.Renew(t, w, "m", "owner", 2*long)
		all.Wait()
		if n := before.Load(); n > 1 { // the one whose step is running
			t.Errorf("%d GUARDs of others ran before that of the owner, want at most 1", n)
		}
	})
}

// The reply to another request's step does not arrive, and its connection stays open.
func TestOwnersRenewalWaitsForNoOtherStep(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		const ttl = 1500 * time.Millisecond
		a := w.acquire(request("m", "a", ttl), simba.StatusAcquired)
		w.data.set(func() { w.data.silent = true })
		w.data.loseNextReply("m")
		began := time.Now()
		other := make(chan error)
		go func() {
			_, _, err := w.Acquire(t.Context(), request("m", "b", long))
			other <- err
		}()
		synctest.Wait()
		for _, token := range []uint64{a.Token, 0, a.Token, 0} {
			sent := time.Now()
			g, err := w.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: ttl, Token: token})
			if err != nil || g.Status != simba.StatusRenewed || g.Token != a.Token || g.TTL != ttl {
				t.Errorf("GUARD of the owner %v after the step: %+v, %v; want renewed", time.Since(began), g, err)
			}
			if took := time.Since(sent); took > 0 {
				t.Errorf("the renewal took %v, want none of the time of the step", took)
			}
			time.Sleep(ttl / 5)
		}
		if took := time.Since(began); took >= requestTimeout {
			t.Errorf("the renewals took %v; want less than the step, %v", took, requestTimeout)
		}
		g, err := w.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: ttl, Token: a.Token + 1})
		if err != nil || g.Status != simba.StatusLost {
			t.Errorf("GUARD with another token: %+v, %v; want lost", g, err)
		}
		if err := <-other; !isUnavailable(err) {
			t.Errorf("the step without reply: %v; want an UnavailableError", err)
		}
	})
}

// Steps of locked mutexes wait for a slot, once the mutexes are known to be locked.
func TestLockedMutexesUseFewConnections(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		const locked = 3 * maxLocked
		for i := range locked {
			w.acquire(request(fmt.Sprint(i), "a", long), simba.StatusAcquired)
			w.data.lock(fmt.Sprint(i), 10*time.Second)
			for _, contender := range []string{"a", "a", "b"} {
				go func() {
					for w.Stopping.Err() == nil {
						_, _ = w.Guard(context.Background(), simba.GuardRequest{Mutex: fmt.Sprint(i), Contender: contender, TTL: long})
					}
				}()
			}
		}
		for range 60 {
			time.Sleep(100 * time.Millisecond)
			if o, _, err := w.Acquire(t.Context(), request("other", "a", long)); err != nil || o.Owner != "a" {
				t.Fatalf("ACQUIRE of another mutex: %+v, %v; want its owner", o, err)
			}
			if n := w.data.waiting.Load(); n > 2*locked {
				t.Fatalf("%d steps wait in the store, want at most two for each mutex, of which one is a renewal of its owner", n)
			}
		}
		if n := w.data.waiting.Load(); n > maxLocked {
			t.Errorf("%d steps wait in the store, want at most %d", n, maxLocked)
		}
		w.Close()
	})
}

// Waiters for locked mutexes whose leases have ended do not delay the waiter for another mutex.
func TestLockedMutexesDelayNoOtherWaiter(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		for i := range 12 * maxRefreshes {
			mutex := fmt.Sprint(i)
			w.acquire(request(mutex, "a", time.Second), simba.StatusAcquired)
			conformance.Block(t, w, mutex, "b", long)
			w.data.lock(mutex, time.Minute)
		}
		time.Sleep(10 * time.Second) // the engine knows that they are locked
		for range 5 {
			w.acquire(request("other", "a", time.Second), simba.StatusAcquired)
			b := conformance.Block(t, w, "other", "b", long)
			began := time.Now()
			b.Granted(t)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("the other waiter was woken after %v, want at most 3 s", took)
			}
			w.release("other", "b", 0)
		}
	})
}

func TestRequestsFailAtOnceWhileTheStoreIsAway(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		b := conformance.Block(t, w, "m", "b", long)
		w.data.set(func() { w.data.faults = &faults{until: time.Now().Add(long), silent: true} })
		ask := func() (time.Duration, error) {
			began := time.Now()
			_, _, err := w.Owner(t.Context(), "m")
			return time.Since(began), err
		}
		if took, err := ask(); !isUnavailable(err) || took != requestTimeout {
			t.Errorf("the first request: %v after %v; want an UnavailableError after the timeout", err, took)
		}
		time.Sleep(3 * refreshTimeout) // two pings
		if took, err := ask(); !isUnavailable(err) || took != 0 {
			t.Errorf("the next request: %v after %v; want an UnavailableError at once", err, took)
		}
		w.data.set(func() { w.data.faults = nil })
		time.Sleep(refreshTimeout + retryPause)
		w.release("m", "a", 0)
		b.Granted(t)
	})
}

// While a renewal is being committed, other transactions still read the old windows.
func TestEndIsNotReportedWhileARenewalCommits(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", time.Second), simba.StatusAcquired)
		w.data.lock("m", 1500*time.Millisecond)
		time.AfterFunc(1400*time.Millisecond, func() {
			w.data.set(func() { w.data.rows["m"].TransitionAt += long.Milliseconds() })
		})
		time.Sleep(1200 * time.Millisecond)
		if o := w.owner("m"); o != "a" {
			t.Errorf("OWNER shows %q; want a, whose lease was renewed in time", o)
		}
	})
}

// A notice of a change that arrives during a read causes another read.
func TestChangeDuringAReadIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newMemory()
		d.announce = true
		one, two := engineOn(t, d, nil), engineOn(t, d, nil)
		w := &world{T: t, Engine: one, data: d}
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		w.Engine = two
		b := conformance.Block(t, w, "m", "b", long)
		d.slowly("Read", time.Second)
		two.changed("m")
		time.Sleep(500 * time.Millisecond)
		w.Engine = one
		w.release("m", "a", 0)
		began := time.Now()
		b.Granted(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("b was granted the mutex %v after the release, want at most 1 s", took)
		}
	})
}

// The reply to the release of the owner is lost, and the next read fails too. The store has granted
// the mutex to the waiter.
func TestFailedReadIsRepeatedSoon(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		b := conformance.Block(t, w, "m", "b", long)
		lose := func(request func() error) {
			w.data.loseNextReply("m")
			if err := request(); !isUnavailable(err) {
				t.Errorf("a request whose reply is lost: %v; want an UnavailableError", err)
			}
		}
		m := w.ref("m") // keeps the timer from reading first
		m.running = true
		lose(func() error {
			_, _, err := w.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a"})
			return err
		})
		lose(func() error {
			_, _, err := w.Acquire(t.Context(), request("m", "c", long))
			return err
		})
		m.running = false
		w.unref(m)
		began := time.Now()
		b.Granted(t)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("b was woken after %v, want at most 2 s", took)
		}
	})
}

func TestRefreshDelayIsTheContentionTiming(t *testing.T) {
	at := func(ttl, transition int64) State {
		return State{Owner: "a", Live: true, Now: 1000, TTLAt: 1000 + ttl, TransitionAt: 1000 + ttl + transition}
	}
	for name, c := range map[string]struct {
		state          State
		poll, from, to time.Duration
	}{
		"with a transition window": {at(4000, 1000), 0, 4800 * time.Millisecond, 6 * time.Second},
		"without one":              {at(5000, 0), 0, 5 * time.Second, 6 * time.Second},
		"never below 0":            {at(0, 50), 0, 0, 1050 * time.Millisecond},
		"free":                     {State{}, 0, 0, time.Second},
		"not longer than the poll": {at(5000, 0), 100 * time.Millisecond, 100 * time.Millisecond, 100*time.Millisecond + 1},
	} {
		e := &Engine{options: Options{Poll: c.poll}}
		var least, most time.Duration = time.Hour, -1
		for range 10000 {
			d := e.refreshDelay(c.state)
			least, most = min(least, d), max(most, d)
		}
		if least < c.from || most >= c.to {
			t.Errorf("%s: refreshDelay returned %v to %v, want [%v, %v)", name, least, most, c.from, c.to)
		}
		if spread := c.to - c.from; most-least < spread/2 {
			t.Errorf("%s: refreshDelay returned only %v to %v, want at least half of the range", name, least, most)
		}
	}
}

// If a call gives up while it waits, the next call still gets the lock.
func TestPriorityLockIsExclusive(t *testing.T) {
	g := newPriorityLock()
	var inside, entered atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%3+1)*100*time.Microsecond)
				if g.lock(ctx, i%5 == 0) == nil {
					if inside.Add(1) != 1 {
						t.Error("two callers hold the lock at once")
					}
					entered.Add(1)
					inside.Add(-1)
					g.unlock()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if len(g.free) != 1 || entered.Load() == 0 {
		t.Errorf("after the last unlock: free has %d elements, and %d calls have had the lock; want 1 and more than 0", len(g.free), entered.Load())
	}
}

// counted is a store that counts reads.
type counted struct {
	*memoryStore
	reads atomic.Int64
}

func (c *counted) Read(ctx context.Context, mutex string, settled bool) (State, error) {
	c.reads.Add(1)
	return c.memoryStore.Read(ctx, mutex, settled)
}

func TestWaiterReadsTheMutexOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counted{memoryStore: newMemory().store().(*memoryStore)}
		e, err := Open(t.Context(), Options{Notices: conformance.NewBroker()}, s)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		conformance.Take(t, e, "m", "o", time.Minute)
		conformance.Block(t, e, "m", "w", time.Minute)
		time.Sleep(time.Second)
		if n := s.reads.Load(); n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
	})
}

func TestStatsHaveTheLastToken(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		o := w.acquire(request("m", "a", long), simba.StatusAcquired)
		if s := w.Stats(); s.Token != o.Token {
			t.Errorf("the last token is %d, want %d", s.Token, o.Token)
		}
	})
}
