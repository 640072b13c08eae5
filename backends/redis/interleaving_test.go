package redis

import (
	"context"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// Orders of events that a busy server meets sooner or later, made by hand.

func TestAWaiterIsToldTheWindowsOfTheTicketThatWasGranted(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newEar())
	acquire(t, b, "m", "a", time.Minute, nil)
	acquire(t, b, "m", "c", time.Second, newBell())
	// The same contender blocks again, and that request never reaches Redis.
	second, _ := b.enter(simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: newBell()})
	release(t, b, "m", "a")
	o, err := second.End(simba.EndWoken)
	if err != nil || o.Status == simba.StatusAcquired && o.TTL > time.Second {
		t.Errorf("told %+v, %v; Redis has %+v", o, err, owner(t, b, "m"))
	}
}

func TestAReplyThatIsTakenInLatePutsOffNoLook(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newEar())
	acquire(t, b, "m", "a", time.Minute, nil)
	late := runScript(t, b, "m", releaseScript, "a", "0", "", "")
	acquire(t, b, "m", "x", time.Minute, nil)
	acquire(t, b, "m", "c", time.Minute, newBell())
	b.takeIn("m", late)
	b.agenda.mu.Lock()
	defer b.agenda.mu.Unlock()
	if x := b.agenda.byMutex["m"]; x == nil || time.Until(x.at) > patience {
		t.Errorf("c waits, and the next look is %+v", x)
	}
}

func TestAGhostIsLaidWhateverElseHappensToItsMutex(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newEar())
	acquire(t, b, "m", "a", time.Hour, nil)
	b.haunt("m", ghost{"c", "77", time.Now().Add(time.Hour)})
	acquire(t, b, "m", "d", time.Minute, nil) // a poll
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		b.mu.Lock()
		left := len(b.ghosts["m"])
		b.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the ghost is still there")
		}
	}
}

func TestAReleasedMutexLeavesNothingOnTheAgenda(t *testing.T) {
	a := newAgenda()
	for _, m := range []string{"x", "y", "z"} {
		a.set(m, time.Now().Add(time.Hour))
	}
	a.cancel("x")
	a.cancel("z")
	a.cancel("z")
	if len(a.heap) != 1 || len(a.byMutex) != 1 || a.heap[0].mutex != "y" || a.heap[0].index != 0 {
		t.Errorf("%d in the heap, %d by mutex", len(a.heap), len(a.byMutex))
	}
}

// runScript runs a script as ask does, and leaves it to the test when its reply is
// taken in.
func runScript(t *testing.T, b *Backend, mutex string, s *script, args ...any) *state {
	t.Helper()
	key := simba.MutexChannel(mutex)
	all := append([]any{"evalsha", s.sha, 1, key, b.id, int64(1000), int64(5000), "0"}, args...)
	sent := time.Now()
	reply, err := b.up.run(context.Background(), key, s, all)
	if err != nil {
		t.Fatal(err)
	}
	st, err := parseState(mutex, s, args, reply)
	if err != nil {
		t.Fatal(err)
	}
	st.sent = sent
	return st
}
