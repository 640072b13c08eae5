package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/names"
	"github.com/simba-resp/simba-resp/client/internal/suspend"
)

func TestOwnerRenewsAtItsTTLOrWithAThirdOfTheLeaseLeft(t *testing.T) {
	const s = time.Second
	for _, c := range []struct{ ttl, transition, want time.Duration }{
		{10 * s, 0, 10 * s * 2 / 3},
		{10 * s, 2 * s, 8 * s},
		{10 * s, 5 * s, 10 * s},
		{10 * s, 100 * s, 10 * s},
		{time.Millisecond, 0, time.Millisecond * 2 / 3},
	} {
		if got := renewIn(c.ttl, c.transition); got != c.want {
			t.Errorf("TTL %v, transition %v: renewal in %v, want %v", c.ttl, c.transition, got, c.want)
		}
	}
}

// The rule: transition_at - now + random(-200, +1000) ms, never below 0. Without a transition
// window the random part is 0 to 1000 ms.
func TestWaiterAsksAgainAtTransitionAtPlusJitter(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ ttl, transition, lowest, highest time.Duration }{
		{8000 * ms, 10_000 * ms, 9800 * ms, 11_000 * ms},
		{0, 10_000 * ms, 9800 * ms, 11_000 * ms},
		{0, 100 * ms, 0, 1100 * ms},
		{10_000 * ms, 10_000 * ms, 10_000 * ms, 11_000 * ms}, // no transition window
		{0, 0, 0, 1000 * ms},
	} {
		least, most := time.Hour, time.Duration(-1)
		for range 10_000 {
			d := contendIn(c.ttl, c.transition)
			least, most = min(least, d), max(most, d)
		}
		if least < c.lowest || most >= c.highest {
			t.Errorf("TTL ends in %v, transition in %v: a waiter asks after %v to %v, want %v to %v", c.ttl, c.transition, least, most, c.lowest, c.highest)
		}
		if least > c.lowest+20*ms || most < c.highest-20*ms {
			t.Errorf("TTL ends in %v, transition in %v: a waiter asks after %v to %v, which is narrower than %v to %v", c.ttl, c.transition, least, most, c.lowest, c.highest)
		}
	}
}

// After a freeze of the process, the lease may have ended before its timer has fired.
func TestOwnershipEndsByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwnership(t.Context(), new(suspendWatch), 7, now(), 10*time.Second)
		child, cancel := context.WithCancel(o)
		defer cancel()
		time.Sleep(9899 * time.Millisecond)
		if err := o.Err(); err != nil || Token(child) != 7 {
			t.Fatalf("before the end of the lease Err is %v and the token is %d, want nil and 7", err, Token(child))
		}
		time.Sleep(time.Millisecond) // 1 % before the end
		if err := o.Err(); !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(o), ErrLost) {
			t.Errorf("at the end of the lease Err is %v with the cause %v, want the cause ErrLost", err, context.Cause(o))
		}
		synctest.Wait()
		if err := child.Err(); err == nil || !errors.Is(context.Cause(child), ErrLost) {
			t.Errorf("at the end of the lease Err of a derived context is %v with the cause %v, want the cause ErrLost", err, context.Cause(child))
		}
		o.renew(now(), time.Minute)
		if o.Err() == nil || o.left() > 0 {
			t.Error("a renewal revives an ownership that has ended")
		}
	})
}

// The monotonic clock stands still while the machine is suspended, but the lease runs on.
func TestWindowsOfAnOwnershipRunWhileTheMachineIsSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := terms{ttl: time.Minute, transition: time.Second}
		o := newOwnership(t.Context(), new(suspendWatch), 7, now(), terms.lease())
		defer o.end(ErrReleased)
		before := o.owner(terms)
		if want := time.Now().Add(time.Minute); !before.TTLAt.Equal(want) || !before.TransitionAt.Equal(want.Add(time.Second)) {
			t.Errorf("the owner is %+v, want a TTL window until %v and a transition window of 1 s", before, want)
		}
		defer suspend.Pretend(10 * time.Second)()
		after := o.owner(terms)
		if ttl, transition := before.TTLAt.Sub(after.TTLAt), before.TransitionAt.Sub(after.TransitionAt); ttl != 10*time.Second || transition != ttl {
			t.Errorf("after a suspension of 10 s the windows end %v and %v earlier, want 10 s", ttl, transition)
		}
		o.renew(now(), 30*time.Second) // the server granted less
		if got := o.owner(terms); !got.TTLAt.Equal(time.Now().Add(30*time.Second)) || !got.TransitionAt.Equal(got.TTLAt) {
			t.Errorf("after the grant of a lease of 30 s the owner is %+v, want both windows to end in 30 s", got)
		}
	})
}

func TestOwnershipEndsAHundredthOfTheLeaseEarly(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		time.Millisecond: 10 * time.Microsecond, 10 * time.Second: 100 * time.Millisecond, time.Hour: 250 * time.Millisecond,
	} {
		if got := margin(lease); got != want {
			t.Errorf("margin(%v) is %v, want %v", lease, got, want)
		}
	}
}

func TestTokenOfAnyOtherContextIsZero(t *testing.T) {
	if got := Token(t.Context()); got != 0 {
		t.Errorf("Token of a context without an ownership is %d, want 0", got)
	}
}

func TestNoticeWakesOnlyTheContendersItConcerns(t *testing.T) {
	own, shared := names.ContenderChannel("job", "me"), names.MutexChannel("job")
	for _, c := range []struct {
		n                     notice
		waiter, owner, manual bool // whether the contender asks; manual: an owner with manual set
	}{
		{notice{channel: own, payload: "released@@a"}, true, true, false},
		{notice{channel: own, subscribed: true}, true, true, false},
		{notice{channel: shared, subscribed: true}, true, true, false},
		{notice{channel: shared, payload: "released@@a"}, true, false, false},
		{notice{channel: shared, payload: "released@@me"}, true, true, true},
		{notice{channel: shared, payload: "acquired@@a"}, false, true, true},
		{notice{channel: shared, payload: "acquired@@me"}, false, false, false},
	} {
		asks := func(owning, manual bool) bool {
			r := &contenderRun{terms: terms{mutex: "job", id: "me"}, manual: manual, wake: make(chan struct{}, 1)}
			r.owning.Store(owning)
			r.notified(c.n)
			return len(r.wake) == 1
		}
		if w, o, s := asks(false, false), asks(true, false), asks(true, true); w != c.waiter || o != c.owner || s != c.manual {
			t.Errorf("after %+v, a waiter asks: %v, want %v; an owner asks: %v, want %v; a manual owner asks: %v, want %v", c.n, w, c.waiter, o, c.owner, s, c.manual)
		}
	}
}
