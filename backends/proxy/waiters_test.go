package proxy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

// fakeStore is a Store that notes what it is asked.
type fakeStore struct {
	mu       sync.Mutex
	asked    []string
	over     bool          // what Granted is asked for
	owner    string        // that it finds then
	position int           // likewise
	late     bool          // nothing is left when it answers
	later    uint64        // that the ticket was granted after the grant that ended its wait; 0 = none
	answer   simba.Outcome // of Replaced and Leave, and of Reacquire where it has no next
	next     *Ticket       // of Reacquire
	again    error         // likewise
	err      error
}

// ownTicket is one of a store that has its own.
type ownTicket struct{ *Ticket }

func (s *fakeStore) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fmt.Sprintf(format, args...))
}

func (s *fakeStore) Granted(t *Ticket, g Grant) (simba.Outcome, error) {
	s.note("granted %s %d", t.Request.Contender, g.Token)
	if s.over {
		return simba.Outcome{Status: simba.StatusTimeout, Owner: s.owner, Position: s.position}, s.err
	}
	o := simba.Outcome{Status: simba.StatusAcquired, Token: max(g.Token, s.later)}
	if !s.late {
		o.Transition = time.Second
	}
	return o, s.err
}

func (s *fakeStore) Reacquire(t *Ticket) (simba.Outcome, simba.Ticket, error) {
	s.note("again %s", t.Request.Contender)
	if s.next == nil {
		return s.answer, nil, s.again
	}
	return simba.Outcome{Status: simba.StatusWaiting}, ownTicket{s.next}, s.again
}

func (s *fakeStore) Replaced(t *Ticket) (simba.Outcome, error) {
	s.note("moved %s", t.Request.Contender)
	return s.answer, s.err
}

func (s *fakeStore) Leave(t *Ticket, why simba.EndReason) (simba.Outcome, error) {
	s.note("leave %s %d", t.Request.Contender, why)
	return s.answer, s.err
}

func (s *fakeStore) HandOff(t *Ticket, g Grant) error {
	s.note("pass %s %d", t.Request.Contender, g.Token)
	return s.err
}

func (s *fakeStore) expect(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.asked, want) {
		t.Errorf("the store was asked %q, want %q", s.asked, want)
	}
}

// waiter counts its wake-ups.
type waiter struct{ woken atomic.Int32 }

func (b *waiter) Wake() { b.woken.Add(1) }

func (b *waiter) expect(t *testing.T, n int32) {
	t.Helper()
	if got := b.woken.Load(); got != n {
		t.Errorf("woken %d times, want %d", got, n)
	}
}

func enter(l *Waiters, mutex, contender string) (*Ticket, *waiter) {
	b := &waiter{}
	return l.Enter(simba.AcquireRequest{Mutex: mutex, Contender: contender, Waiter: b}), b
}

func TestGrantWakesItsWaiterOnceAndEndReturnsIt(t *testing.T) {
	s := &fakeStore{}
	l := NewWaiters(s)
	ticket, b := enter(l, "m", "a")
	if l.Grant("m", "x", Grant{Token: 1}) || l.Grant("x", "a", Grant{Token: 1}) {
		t.Error("somebody else was granted")
	}
	if !l.Grant("m", "a", Grant{Token: 7}) {
		t.Error("nobody was granted")
	}
	if l.Grant("m", "a", Grant{Token: 8}) {
		t.Error("granted twice")
	}
	b.expect(t, 1)
	for _, why := range []simba.EndReason{simba.EndTimeout} {
		if o, err := ticket.End(why); err != nil || o.Status != simba.StatusAcquired || o.Token != 7 {
			t.Errorf("%+v, %v", o, err)
		}
	}
	s.expect(t, "granted a 7")
}

func TestGrantOfGoneWaiterIsHandedOff(t *testing.T) {
	s := &fakeStore{}
	l := NewWaiters(s)
	ticket, _ := enter(l, "m", "a")
	l.Grant("m", "a", Grant{Token: 7})
	if o, err := ticket.End(simba.EndGone); err != nil || o.Status == simba.StatusAcquired {
		t.Errorf("%+v, %v", o, err)
	}
	s.expect(t, "pass a 7")
}

func TestAbandonHandsOffTheOutcomeOfEnd(t *testing.T) {
	s := &fakeStore{}
	l := NewWaiters(s)
	ticket, _ := enter(l, "m", "a")
	l.Grant("m", "a", Grant{Token: 7})
	_, _ = ticket.End(simba.EndWoken)
	if _, err := ticket.Abandon(); err != nil {
		t.Error(err)
	}
	s.expect(t, "granted a 7", "pass a 7")
}

func TestAbandonHandsOffTheLaterTenureOfEnd(t *testing.T) {
	s := &fakeStore{later: 9}
	l := NewWaiters(s)
	ticket, _ := enter(l, "m", "a")
	l.Grant("m", "a", Grant{Token: 7})
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Token != 9 {
		t.Errorf("%+v, %v", o, err)
	}
	_, _ = ticket.Abandon()
	s.expect(t, "granted a 7", "pass a 9")
}

// tooLate is a grant whose lease of a second was over before its waiter could be told.
func tooLate() Grant { return Grant{Token: 7, Since: time.Now().Add(-time.Second)} }

// overtaken has a wait for a lease of a second end with g, which is over.
func overtaken(s *fakeStore, g Grant) *Ticket {
	s.over = true
	l := NewWaiters(s)
	t := l.Enter(simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: time.Second, Waiter: &waiter{}})
	l.Grant("m", "a", g)
	return t
}

func TestGrantThatExpiredBeforeEndIsReacquired(t *testing.T) {
	for name, grant := range map[string]func() Grant{
		"by time":             tooLate,
		"by the store's word": func() Grant { return Grant{Confirm: true, Ended: true} },
		"by the store's clock, which counts in milliseconds": func() Grant {
			return Grant{Token: 7, Since: time.Now().Add(-time.Second + 900*time.Microsecond)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeStore{}
			s.next, _ = enter(NewWaiters(s), "m", "a")
			ticket := overtaken(s, grant())
			if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusWaiting {
				t.Errorf("%+v, %v", o, err)
			}
			s.over = false
			s.next.Grant(Grant{Token: 9})
			if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired || o.Token != 9 {
				t.Errorf("%+v, %v", o, err)
			}
			if _, err := ticket.Abandon(); err != nil {
				t.Error(err)
			}
			s.expect(t, fmt.Sprintf("granted a %d", grant().Token), "again a", "granted a 9", "pass a 9")
		})
	}
}

func TestGrantConfirmedTooLateIsReacquired(t *testing.T) {
	s := &fakeStore{}
	s.next, _ = enter(NewWaiters(s), "m", "a")
	ticket := overtaken(s, Grant{Token: 7, Since: time.Now().Add(time.Hour), Confirm: true})
	s.over, s.late = false, true
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusWaiting {
		t.Errorf("%+v, %v", o, err)
	}
	s.expect(t, "granted a 7", "again a")
}

func TestRepeatedlyReacquiredTicketsFormNoChain(t *testing.T) {
	s := &fakeStore{}
	ticket := overtaken(s, tooLate())
	for range 5 {
		s.next, _ = enter(NewWaiters(s), "m", "a")
		if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusWaiting {
			t.Fatalf("%+v, %v", o, err)
		}
		if ticket.next != simba.Ticket(ownTicket{s.next}) {
			t.Fatalf("waits by %v, not by the last ticket", ticket.next)
		}
		s.next.Grant(tooLate())
	}
}

func TestGrantOfReacquireIsTheOutcome(t *testing.T) {
	s := &fakeStore{answer: simba.Outcome{Status: simba.StatusAcquired, Token: 9}}
	ticket := overtaken(s, tooLate())
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired || o.Token != 9 {
		t.Errorf("%+v, %v", o, err)
	}
	_, _ = ticket.Abandon()
	s.expect(t, "granted a 7", "again a", "pass a 9")
}

func TestExpiredGrantIsNotReacquiredIfItsContenderHasALaterRequest(t *testing.T) {
	queued := simba.Outcome{Status: simba.StatusQueued}
	t.Run("and waits there", func(t *testing.T) {
		s := &fakeStore{answer: queued}
		ticket := overtaken(s, tooLate())
		_, later := enter(ticket.waiters, "m", "a")
		if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusQueued {
			t.Errorf("%+v, %v", o, err)
		}
		s.expect(t, "granted a 7", "moved a")
		later.expect(t, 0)
	})
	t.Run("and polls", func(t *testing.T) {
		s := &fakeStore{answer: queued, position: 3}
		if o, err := overtaken(s, tooLate()).End(simba.EndWoken); err != nil || o.Status != simba.StatusQueued {
			t.Errorf("%+v, %v", o, err)
		}
		s.expect(t, "granted a 7", "moved a")
	})
	t.Run("and owns the mutex", func(t *testing.T) {
		s := &fakeStore{owner: "a"}
		if o, err := overtaken(s, tooLate()).End(simba.EndWoken); err != nil || o.Status != simba.StatusTimeout || o.Owner != "a" {
			t.Errorf("%+v, %v", o, err)
		}
		s.expect(t, "granted a 7")
	})
}

func TestEndReturnsTheErrorOfReacquire(t *testing.T) {
	broken := errors.New("broken")
	s := &fakeStore{}
	ticket := overtaken(s, tooLate())
	s.again = broken
	if _, err := ticket.End(simba.EndWoken); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestWaitThatHasEndedAnywayIsNotReacquired(t *testing.T) {
	young := Grant{Token: 7, Since: time.Now().Add(time.Hour)}
	for _, end := range []struct {
		why simba.EndReason
		g   Grant
	}{
		{simba.EndTimeout, tooLate()}, {simba.EndLeft, tooLate()}, // its own time is up, too
		{simba.EndWoken, young},   // its contender has given it up elsewhere
		{simba.EndWoken, Grant{}}, // its contender has left the queue elsewhere
	} {
		s := &fakeStore{}
		ticket := overtaken(s, end.g)
		if o, err := ticket.End(end.why); err != nil || o.Status != simba.StatusTimeout {
			t.Errorf("%v %+v: %+v, %v", end.why, end.g, o, err)
		}
		s.expect(t, fmt.Sprintf("granted a %d", end.g.Token))
	}
}

func TestAbandonHandsOffGrantFoundInTheStore(t *testing.T) {
	for _, how := range []string{"leave", "moved"} {
		s := &fakeStore{answer: simba.Outcome{Status: simba.StatusAcquired, Token: 9}}
		l := NewWaiters(s)
		ticket, _ := enter(l, "m", "a")
		first := "leave a 1"
		if how == "moved" {
			enter(l, "m", "a")
			first = "moved a"
		}
		if o, err := ticket.End(simba.EndTimeout); err != nil || o.Token != 9 {
			t.Errorf("%s: %+v, %v", how, o, err)
		}
		_, _ = ticket.Abandon()
		s.expect(t, first, "pass a 9")
	}
}

func TestAbandonAfterEndWithoutTheMutexDoesNothing(t *testing.T) {
	s := &fakeStore{answer: simba.Outcome{Status: simba.StatusTimeout}}
	l := NewWaiters(s)
	ticket, _ := enter(l, "m", "a")
	_, _ = ticket.End(simba.EndTimeout)
	_, _ = ticket.Abandon()
	failed, _ := enter(l, "m", "b")
	s.err = errors.New("no answer")
	s.answer = simba.Outcome{Status: simba.StatusAcquired, Token: 9}
	if _, err := failed.End(simba.EndTimeout); err != s.err {
		t.Error(err)
	}
	_, _ = failed.Abandon()
	s.expect(t, "leave a 1", "leave b 1")
}

func TestSecondTicketOfAContenderReplacesTheFirst(t *testing.T) {
	s := &fakeStore{answer: simba.Outcome{Status: simba.StatusQueued}}
	l := NewWaiters(s)
	first, woken := enter(l, "m", "a")
	enter(l, "m", "b")
	second, b := enter(l, "m", "a")
	woken.expect(t, 1)
	if w := l.Waiting("m"); len(w) != 2 || w[0] != second {
		t.Errorf("waiting: %v", w)
	}
	if l.Find("m", "a") != second || first.Withdraw() {
		t.Error("the first is still there")
	}
	if first.Grant(Grant{Token: 6}) || l.Find("m", "a") != second {
		t.Error("a grant for the first met the second")
	}
	if o, _ := first.End(simba.EndWoken); o.Status != simba.StatusQueued {
		t.Errorf("the first: %+v", o)
	}
	if l.Find("m", "a") != second {
		t.Error("the end of the first took the second away")
	}
	l.Grant("m", "a", Grant{Token: 7})
	b.expect(t, 1)
	woken.expect(t, 1)
	s.expect(t, "moved a")
}

func TestWithdrawReportsWhetherTheTicketStillWaited(t *testing.T) {
	l := NewWaiters(&fakeStore{})
	ticket, _ := enter(l, "m", "a")
	if !ticket.Withdraw() || ticket.Withdraw() {
		t.Error("withdrawn, and again")
	}
	if l.Grant("m", "a", Grant{Token: 7}) {
		t.Error("one that was withdrawn was granted")
	}
	ticket, _ = enter(l, "m", "a")
	l.Grant("m", "a", Grant{Token: 8})
	if ticket.Withdraw() {
		t.Error("one that was granted was withdrawn")
	}
}

func TestWaitersAreListedByArrivalAndRemovedAtTheEnd(t *testing.T) {
	l := NewWaiters(&fakeStore{})
	var want []*Ticket
	for i := range 50 {
		ticket, _ := enter(l, "m", fmt.Sprintf("c%02d", 99-i))
		want = append(want, ticket)
	}
	enter(l, "other", "a")
	if got := l.Waiting("m"); !slices.Equal(got, want) {
		t.Error("not in the order of arrival")
	}
	if l.Count("m") != 50 || l.Len() != 51 || len(l.Mutexes()) != 2 || l.Count("none") != 0 || l.Waiting("none") != nil {
		t.Errorf("%d of %d, %v", l.Count("m"), l.Len(), l.Mutexes())
	}
	for _, ticket := range want {
		_, _ = ticket.End(simba.EndTimeout)
	}
	if l.Count("m") != 0 || l.Len() != 1 || !slices.Equal(l.Mutexes(), []string{"other"}) {
		t.Errorf("left over: %d, %v", l.Len(), l.Mutexes())
	}
}

func TestTicketEndsExactlyOnceHoweverGrantAndEndRace(t *testing.T) {
	for i := range 2000 {
		s := &fakeStore{answer: simba.Outcome{Status: simba.StatusTimeout}}
		l := NewWaiters(s)
		ticket, b := enter(l, "m", "a")
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
			all.Go(func() { enter(l, "m", "a") }) // may be granted instead
		}
		all.Wait()
		told := b.woken.Load()
		switch {
		case told > 1:
			t.Fatalf("woken %d times", told)
		case o.Status == simba.StatusAcquired && told != 1:
			t.Fatalf("%+v, and never woken", o)
		case i%2 == 1 && (granted.Load() == 1) != (o.Status == simba.StatusAcquired):
			t.Fatalf("granted %d times, and the end was %+v", granted.Load(), o)
		}
		if len(s.asked) != 1 {
			t.Fatalf("the store was asked %q", s.asked)
		}
	}
}
