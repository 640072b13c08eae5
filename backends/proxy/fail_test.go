package proxy

import (
	"errors"
	"testing"

	"github.com/simba-resp/simba-resp"
)

var errRefused = errors.New("the store refuses")

func TestFailWakesTheWaiterAndEndReturnsTheError(t *testing.T) {
	s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusTimeout}}
	l, a, waiterA := wait(s)
	_, waiterB := enter(l, "other", "b")
	l.Fail("m", errRefused)
	l.Fail("m", errors.New("another"))
	waiterA.expect(t, 1)
	waiterB.expect(t, 0)
	if o, err := a.End(simba.EndWoken); err != errRefused || o != (simba.Outcome{}) {
		t.Errorf("End of the failed wait: %+v, %v; want the error of Fail", o, err)
	}
	s.expect(t, "leave a 2")
	if l.Find("m", "a") != nil || l.Grant("m", "a", Grant{Token: 7}) {
		t.Error("the failed waiter still waits")
	}
	if _, err := a.Abandon(); err != nil {
		t.Errorf("Abandon: %v, want no error", err)
	}
	s.expect(t, "leave a 2")
}

func TestFailedWaitReturnsTheErrorThoughLeaveFails(t *testing.T) {
	s := &fakeEnder{err: errors.New("cannot leave")}
	l, a, _ := wait(s)
	l.Fail("m", errRefused)
	if o, err := a.End(simba.EndWoken); err != errRefused || o != (simba.Outcome{}) {
		t.Errorf("End of the failed wait: %+v, %v; want the error of Fail", o, err)
	}
}

func TestGrantBeforeEndWinsOverTheError(t *testing.T) {
	for _, grant := range []func(*Waiters){
		func(l *Waiters) { l.Fail("m", errRefused); l.Grant("m", "a", Grant{Token: 7}) },
		func(l *Waiters) { l.Grant("m", "a", Grant{Token: 7}); l.Fail("m", errRefused) },
	} {
		s := &fakeEnder{}
		l, a, _ := wait(s)
		grant(l)
		ends(t, a, simba.EndWoken, simba.StatusAcquired, 7)
	}
}

func TestGrantFoundInTheStoreWinsOverTheError(t *testing.T) {
	s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusAcquired, Token: 7}}
	l, a, _ := wait(s)
	l.Fail("m", errRefused)
	ends(t, a, simba.EndWoken, simba.StatusAcquired, 7)
	if _, err := a.Abandon(); err != nil {
		t.Errorf("Abandon: %v, want no error", err)
	}
	s.expect(t, "leave a 2", "hand off a 7")
}

func TestFailedWaiterStaysQueuedIfItsConnectionIsGone(t *testing.T) {
	s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusQueued}}
	l, a, _ := wait(s)
	l.Fail("m", errRefused)
	ends(t, a, simba.EndGone, simba.StatusQueued, 0)
	s.expect(t, "leave a 3")
}
