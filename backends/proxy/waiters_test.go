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

// fakeEnder is a WaitEnder that records its calls.
type fakeEnder struct {
	mu       sync.Mutex
	calls    []string
	ended    bool          // Granted returns StatusTimeout, because the tenure has ended
	owner    string        // the owner that Granted returns if ended
	position int           // the position that Granted returns if ended
	late     bool          // Granted returns a lease with no time left
	later    uint64        // token of a later tenure, which Granted returns; 0 = none
	outcome  simba.Outcome // result of Replaced and Leave, and of Reacquire if next is nil
	next     *Ticket       // result of Reacquire
	again    error         // the error of Reacquire
	err      error         // the error of all other methods
}

// ownTicket is like the ticket type of an engine that embeds a Ticket.
type ownTicket struct{ *Ticket }

func (s *fakeEnder) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *fakeEnder) Granted(t *Ticket, g Grant) (simba.Outcome, error) {
	s.note("granted %s %d", t.Request.Contender, g.Token)
	if s.ended {
		return simba.Outcome{Status: simba.StatusTimeout, Owner: s.owner, Position: s.position}, s.err
	}
	o := simba.Outcome{Status: simba.StatusAcquired, Token: max(g.Token, s.later)}
	if !s.late {
		o.Transition = time.Second
	}
	return o, s.err
}

func (s *fakeEnder) Reacquire(t *Ticket) (simba.Outcome, simba.Ticket, error) {
	s.note("reacquire %s", t.Request.Contender)
	if s.next == nil {
		return s.outcome, nil, s.again
	}
	return simba.Outcome{Status: simba.StatusWaiting}, ownTicket{s.next}, s.again
}

func (s *fakeEnder) Replaced(t *Ticket) (simba.Outcome, error) {
	s.note("replaced %s", t.Request.Contender)
	return s.outcome, s.err
}

func (s *fakeEnder) Leave(t *Ticket, why simba.EndReason) (simba.Outcome, error) {
	s.note("leave %s %d", t.Request.Contender, why)
	return s.outcome, s.err
}

func (s *fakeEnder) HandOff(t *Ticket, g Grant) error {
	s.note("hand off %s %d", t.Request.Contender, g.Token)
	return s.err
}

func (s *fakeEnder) expect(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.calls, want) {
		t.Errorf("calls: %q, want %q", s.calls, want)
	}
}

// waiter counts its wake-ups.
type waiter struct{ woken atomic.Int32 }

func (b *waiter) Wake() { b.woken.Add(1) }

func (b *waiter) expect(t *testing.T, n int32) {
	t.Helper()
	if got := b.woken.Load(); got != n {
		t.Errorf("the waiter was woken %d times, want %d", got, n)
	}
}

func enter(l *Waiters, mutex, contender string) (*Ticket, *waiter) {
	b := &waiter{}
	return l.Enter(simba.AcquireRequest{Mutex: mutex, Contender: contender, Waiter: b}), b
}

// wait makes a ticket of contender a for mutex m.
func wait(s *fakeEnder) (*Waiters, *Ticket, *waiter) {
	l := NewWaiters(s)
	ticket, b := enter(l, "m", "a")
	return l, ticket, b
}

// ends checks the outcome of a wait.
func ends(t *testing.T, ticket *Ticket, why simba.EndReason, status simba.Status, token uint64) {
	t.Helper()
	if o, err := ticket.End(why); err != nil || o.Status != status || o.Token != token {
		t.Errorf("End(%v): %+v, %v; want %v with token %d", why, o, err, status, token)
	}
}

func TestGrantWakesItsWaiterOnceAndEndReturnsIt(t *testing.T) {
	s := &fakeEnder{}
	l, ticket, b := wait(s)
	if l.Grant("m", "x", Grant{Token: 1}) || l.Grant("x", "a", Grant{Token: 1}) {
		t.Error("Grant for another contender or mutex returned true, want false")
	}
	if !l.Grant("m", "a", Grant{Token: 7}) {
		t.Error("Grant for the waiter returned false, want true")
	}
	if l.Grant("m", "a", Grant{Token: 8}) {
		t.Error("the second Grant for the waiter returned true, want false")
	}
	b.expect(t, 1)
	ends(t, ticket, simba.EndTimeout, simba.StatusAcquired, 7)
	s.expect(t, "granted a 7")
}

func TestAbandonHandsOffTheLaterTenureOfEnd(t *testing.T) {
	s := &fakeEnder{later: 9}
	l, ticket, _ := wait(s)
	l.Grant("m", "a", Grant{Token: 7})
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Token != 9 {
		t.Errorf("End: %+v, %v; want the later token 9", o, err)
	}
	_, _ = ticket.Abandon()
	s.expect(t, "granted a 7", "hand off a 9")
}

// tooLate returns a grant whose lease of one second has expired.
func tooLate() Grant { return Grant{Token: 7, Since: time.Now().Add(-time.Second)} }

// endedBy returns a ticket whose request has a TTL of one second. Grant g has ended its wait, and
// the tenure of g has ended too.
func endedBy(s *fakeEnder, g Grant) *Ticket {
	s.ended = true
	l := NewWaiters(s)
	t := l.Enter(simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: time.Second, Waiter: &waiter{}})
	l.Grant("m", "a", g)
	return t
}

func TestGrantThatExpiredBeforeEndIsReacquired(t *testing.T) {
	for name, grant := range map[string]func() Grant{
		"by time":              tooLate,
		"as the store reports": func() Grant { return Grant{Confirm: true, Ended: true} },
		"by the store's clock of milliseconds": func() Grant {
			return Grant{Token: 7, Since: time.Now().Add(-time.Second + 900*time.Microsecond)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeEnder{}
			s.next, _ = enter(NewWaiters(s), "m", "a")
			ticket := endedBy(s, grant())
			ends(t, ticket, simba.EndWoken, simba.StatusWaiting, 0)
			s.ended = false
			s.next.Grant(Grant{Token: 9})
			ends(t, ticket, simba.EndWoken, simba.StatusAcquired, 9)
			if _, err := ticket.Abandon(); err != nil {
				t.Errorf("Abandon: %v, want no error", err)
			}
			s.expect(t, fmt.Sprintf("granted a %d", grant().Token), "reacquire a", "granted a 9", "hand off a 9")
		})
	}
}

func TestGrantConfirmedTooLateIsReacquired(t *testing.T) {
	s := &fakeEnder{}
	s.next, _ = enter(NewWaiters(s), "m", "a")
	ticket := endedBy(s, Grant{Token: 7, Since: time.Now().Add(time.Hour), Confirm: true})
	s.ended, s.late = false, true
	ends(t, ticket, simba.EndWoken, simba.StatusWaiting, 0)
	s.expect(t, "granted a 7", "reacquire a")
}

func TestRepeatedlyReacquiredTicketsFormNoChain(t *testing.T) {
	s := &fakeEnder{}
	ticket := endedBy(s, tooLate())
	for range 5 {
		s.next, _ = enter(NewWaiters(s), "m", "a")
		if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusWaiting {
			t.Fatalf("End of the expired grant: %+v, %v; want waiting", o, err)
		}
		if ticket.next != simba.Ticket(ownTicket{s.next}) {
			t.Fatalf("the ticket's next is %v, want the last ticket", ticket.next)
		}
		s.next.Grant(tooLate())
	}
}

func TestGrantOfReacquireIsTheOutcome(t *testing.T) {
	s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusAcquired, Token: 9}}
	ticket := endedBy(s, tooLate())
	ends(t, ticket, simba.EndWoken, simba.StatusAcquired, 9)
	_, _ = ticket.Abandon()
	s.expect(t, "granted a 7", "reacquire a", "hand off a 9")
}

func TestExpiredGrantIsNotReacquiredIfItsContenderHasALaterRequest(t *testing.T) {
	queued := simba.Outcome{Status: simba.StatusQueued}
	t.Run("and waits", func(t *testing.T) {
		s := &fakeEnder{outcome: queued}
		ticket := endedBy(s, tooLate())
		_, later := enter(ticket.waiters, "m", "a")
		ends(t, ticket, simba.EndWoken, simba.StatusQueued, 0)
		s.expect(t, "granted a 7", "replaced a")
		later.expect(t, 0)
	})
	t.Run("and polls", func(t *testing.T) {
		s := &fakeEnder{outcome: queued, position: 3}
		ends(t, endedBy(s, tooLate()), simba.EndWoken, simba.StatusQueued, 0)
		s.expect(t, "granted a 7", "replaced a")
	})
	t.Run("and owns the mutex", func(t *testing.T) {
		s := &fakeEnder{owner: "a"}
		if o, err := endedBy(s, tooLate()).End(simba.EndWoken); err != nil || o.Status != simba.StatusTimeout || o.Owner != "a" {
			t.Errorf("End of the earlier request: %+v, %v; want timeout with a as the owner", o, err)
		}
		s.expect(t, "granted a 7")
	})
}

func TestEndReturnsTheErrorOfReacquire(t *testing.T) {
	broken := errors.New("broken")
	s := &fakeEnder{}
	ticket := endedBy(s, tooLate())
	s.again = broken
	if _, err := ticket.End(simba.EndWoken); !errors.Is(err, broken) {
		t.Errorf("End: %v, want the error of Reacquire", err)
	}
}

func TestWaitThatHasEndedAnywayIsNotReacquired(t *testing.T) {
	young := Grant{Token: 7, Since: time.Now().Add(time.Hour)}
	for _, end := range []struct {
		why simba.EndReason
		g   Grant
	}{
		{simba.EndTimeout, tooLate()}, {simba.EndLeft, tooLate()}, // the wait has timed out as well
		{simba.EndWoken, young},   // another request of its contender has released the mutex
		{simba.EndWoken, Grant{}}, // another request of its contender has left the queue
	} {
		s := &fakeEnder{}
		ticket := endedBy(s, end.g)
		ends(t, ticket, end.why, simba.StatusTimeout, 0)
		s.expect(t, fmt.Sprintf("granted a %d", end.g.Token))
	}
}

func TestAbandonHandsOffGrantFoundInTheStore(t *testing.T) {
	for _, how := range []string{"leave", "replaced"} {
		s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusAcquired, Token: 9}}
		l, ticket, _ := wait(s)
		first := "leave a 1"
		if how == "replaced" {
			enter(l, "m", "a")
			first = "replaced a"
		}
		if o, err := ticket.End(simba.EndTimeout); err != nil || o.Token != 9 {
			t.Errorf("End, %s: %+v, %v; want token 9", how, o, err)
		}
		_, _ = ticket.Abandon()
		s.expect(t, first, "hand off a 9")
	}
}

func TestAbandonAfterEndWithoutTheMutexDoesNothing(t *testing.T) {
	s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusTimeout}}
	l, ticket, _ := wait(s)
	_, _ = ticket.End(simba.EndTimeout)
	_, _ = ticket.Abandon()
	failed, _ := enter(l, "m", "b")
	s.err = errors.New("no answer")
	s.outcome = simba.Outcome{Status: simba.StatusAcquired, Token: 9}
	if _, err := failed.End(simba.EndTimeout); err != s.err {
		t.Errorf("End: %v, want the error of Leave", err)
	}
	_, _ = failed.Abandon()
	s.expect(t, "leave a 1", "leave b 1")
}

func TestSecondTicketOfAContenderReplacesTheFirst(t *testing.T) {
	s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusQueued}}
	l, first, woken := wait(s)
	enter(l, "m", "b")
	second, b := enter(l, "m", "a")
	woken.expect(t, 1)
	if w := l.Waiting("m"); len(w) != 2 || w[0] != second {
		t.Errorf("Waiting: %v; want the second ticket and b", w)
	}
	if l.Find("m", "a") != second || first.Withdraw() {
		t.Error("the first ticket still waits after the second replaced it")
	}
	if first.Grant(Grant{Token: 6}) || l.Find("m", "a") != second {
		t.Error("a grant for the first ticket ended the second")
	}
	if o, _ := first.End(simba.EndWoken); o.Status != simba.StatusQueued {
		t.Errorf("End of the first ticket: %+v; want queued", o)
	}
	if l.Find("m", "a") != second {
		t.Error("the end of the first ticket removed the second")
	}
	l.Grant("m", "a", Grant{Token: 7})
	b.expect(t, 1)
	woken.expect(t, 1)
	s.expect(t, "replaced a")
}

func TestWithdrawReportsWhetherTheTicketStillWaited(t *testing.T) {
	l := NewWaiters(&fakeEnder{})
	ticket, _ := enter(l, "m", "a")
	if !ticket.Withdraw() || ticket.Withdraw() {
		t.Error("two calls of Withdraw did not return true and then false")
	}
	if l.Grant("m", "a", Grant{Token: 7}) {
		t.Error("a withdrawn ticket was granted")
	}
	ticket, _ = enter(l, "m", "a")
	l.Grant("m", "a", Grant{Token: 8})
	if ticket.Withdraw() {
		t.Error("a granted ticket was withdrawn")
	}
}

func TestWaitersAreListedByArrivalAndRemovedAtTheEnd(t *testing.T) {
	l := NewWaiters(&fakeEnder{})
	var want []*Ticket
	for i := range 50 {
		ticket, _ := enter(l, "m", fmt.Sprintf("c%02d", 99-i))
		want = append(want, ticket)
	}
	enter(l, "other", "a")
	if got := l.Waiting("m"); !slices.Equal(got, want) {
		t.Error("Waiting: the tickets are not in the order in which they entered")
	}
	if l.Count("m") != 50 || l.Len() != 51 || len(l.Mutexes()) != 2 || l.Count("none") != 0 || l.Waiting("none") != nil {
		t.Errorf("Count is %d, Len %d, Mutexes %v; want 50, 51 and two", l.Count("m"), l.Len(), l.Mutexes())
	}
	for _, ticket := range want {
		_, _ = ticket.End(simba.EndTimeout)
	}
	if l.Count("m") != 0 || l.Len() != 1 || !slices.Equal(l.Mutexes(), []string{"other"}) {
		t.Errorf("after the ends Len is %d, Mutexes %v; want only one waiter of other", l.Len(), l.Mutexes())
	}
}

func TestTicketEndsExactlyOnceHoweverGrantAndEndRace(t *testing.T) {
	for i := range 2000 {
		s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusTimeout}}
		l, ticket, b := wait(s)
		var all sync.WaitGroup
		var granted atomic.Int32
		for k := range 3 {
			all.Go(func() {
				if l.Grant("m", "a", Grant{Token: uint64(k + 1)}) {
					granted.Add(1)
				}
			})
		}
		var o simba.Outcome
		all.Go(func() { o, _ = ticket.End(simba.EndTimeout) })
		if i%2 == 0 {
			all.Go(func() { enter(l, "m", "a") }) // may get the grant instead
		}
		all.Wait()
		woken := b.woken.Load()
		switch {
		case woken > 1:
			t.Fatalf("the waiter was woken %d times, want at most once", woken)
		case o.Status == simba.StatusAcquired && woken != 1:
			t.Fatalf("End returned %+v, but the waiter was woken %d times, want once", o, woken)
		case i%2 == 1 && (granted.Load() == 1) != (o.Status == simba.StatusAcquired):
			t.Fatalf("Grant returned true %d times, and End returned %+v; want acquired if Grant returned true once, and only then", granted.Load(), o)
		}
		if len(s.calls) != 1 {
			t.Fatalf("the calls of the WaitEnder are %q, want one", s.calls)
		}
	}
}

// Others ask for a tenure while a waiter waits for the end of a lease of another server.
func TestReadsDoNotDelayTheWaiter(t *testing.T) {
	var worst time.Duration
	for range 30 {
		inWorld(t, nil, func(t *testing.T, w *world) {
			other := w.another()
			other.acquire(request("m", "a", 2*time.Second), simba.StatusAcquired)
			end := time.Now().Add(2 * time.Second)
			b := conformance.Block(t, w, "m", "b", long)
			stop := make(chan struct{})
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						_, _ = w.Guard(context.Background(), simba.GuardRequest{Mutex: "m", Contender: "c", TTL: long})
					}
				}
			}()
			b.Granted(t)
			worst = max(worst, time.Since(end))
			close(stop)
			synctest.Wait()
		})
	}
	if worst > 1100*time.Millisecond {
		t.Errorf("a waiter was woken %v after the end of the lease, want at most 1 s", worst)
	}
}

// A waiter gets the short lease of the contender's other request, and its client is slow.
func TestWaitGoesOnAfterTheExpiredLeaseOfAnotherRequest(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		b := conformance.Block(t, w, "m", "b", long)
		other := w.another()
		other.release("m", "a", 0)
		other.acquire(request("m", "b", 100*time.Millisecond), simba.StatusAcquired)
		w.changed("m")
		<-b.Woken
		time.Sleep(200 * time.Millisecond)
		o, err := b.Ticket.End(simba.EndWoken)
		if err != nil || o.Status == simba.StatusTimeout {
			t.Errorf("the end of the wait: %+v, %v; want waiting or acquired", o, err)
		}
	})
}
