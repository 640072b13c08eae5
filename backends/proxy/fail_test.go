package proxy

import (
	"errors"
	"testing"

	"github.com/simba-resp/simba-resp"
)

var errRefused = errors.New("the store refuses")

func TestFailWakesTheWaiterAndEndReturnsTheError(t *testing.T) {
	s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusTimeout}}
	l := NewWaiters(s)
	a, waiterA := enter(l, "m", "a")
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
	l := NewWaiters(s)
	a, _ := enter(l, "m", "a")
	l.Fail("m", errRefused)
	if o, err := a.End(simba.EndWoken); err != errRefused || o != (simba.Outcome{}) {
		t.Errorf("End of the failed wait: %+v, %v; want the error of Fail", o, err)
	}
}

func TestGrantBeforeEndWinsOverTheError(t *testing.T) {
	for name, grant := range map[string]func(*Waiters){
		"after the error":  func(l *Waiters) { l.Fail("m", errRefused); l.Grant("m", "a", Grant{Token: 7}) },
		"before the error": func(l *Waiters) { l.Grant("m", "a", Grant{Token: 7}); l.Fail("m", errRefused) },
	} {
		s := &fakeEnder{}
		l := NewWaiters(s)
		a, _ := enter(l, "m", "a")
		grant(l)
		if o, err := a.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired || o.Token != 7 {
			t.Errorf("%s, End: %+v, %v; want acquired with token 7", name, o, err)
		}
	}
}

func TestGrantFoundInTheStoreWinsOverTheError(t *testing.T) {
	s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusAcquired, Token: 7}}
	l := NewWaiters(s)
	a, _ := enter(l, "m", "a")
	l.Fail("m", errRefused)
	if o, err := a.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired || o.Token != 7 {
		t.Errorf("End: %+v, %v; want acquired with the token in the store, 7", o, err)
	}
	if _, err := a.Abandon(); err != nil {
		t.Errorf("Abandon: %v, want no error", err)
	}
	s.expect(t, "leave a 2", "hand off a 7")
}

func TestFailedWaiterStaysQueuedIfItsConnectionIsGone(t *testing.T) {
	s := &fakeEnder{outcome: simba.Outcome{Status: simba.StatusQueued}}
	l := NewWaiters(s)
	a, _ := enter(l, "m", "a")
	l.Fail("m", errRefused)
	if o, err := a.End(simba.EndGone); err != nil || o.Status != simba.StatusQueued {
		t.Errorf("End of the gone waiter: %+v, %v; want queued", o, err)
	}
	s.expect(t, "leave a 3")
}
