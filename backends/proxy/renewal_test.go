package proxy

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
)

// slowly makes the replies to the next step of a kind arrive late. The step itself is not late.
func (d *memory) slowly(step string, late time.Duration) {
	d.set(func() { d.slow = map[string]time.Duration{step: late} })
}

// A renewal shortens the lease while the reply to an earlier step, which has seen the longer lease,
// is under way. The next waiter does not wait until the end of the longer lease.
func TestLateReplyHidesNoShorterLease(t *testing.T) {
	for step, send := range map[string]func(*world){
		"Renew": func(w *world) { conformance.Renew(w.T, w, "m", "a", long) },
		"Read":  func(w *world) { w.acquire(request("m", "c", long), simba.StatusQueued) },
	} {
		t.Run(step, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.acquire(request("m", "a", long), simba.StatusAcquired)
				b := conformance.Block(t, w, "m", "b", long)
				w.data.slowly(step, time.Second)
				var sent sync.WaitGroup
				sent.Go(func() { send(w) })
				time.Sleep(500 * time.Millisecond)
				conformance.Renew(t, w, "m", "a", time.Second)
				began := time.Now()
				b.Granted(t)
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the waiter was woken %v after the renewal for 1 s, want at most 3 s", took)
				}
				sent.Wait()
			})
		})
	}
}

// The contender has got another tenure through another server, which this server has not noticed.
func TestRenewalOfAnUnknownTenureIsNoticed(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		b := conformance.Block(t, w, "m", "b", long)
		other := w.another()
		other.release("m", "a", 0)
		other.acquire(request("m", "a", long), simba.StatusAcquired)
		conformance.Renew(t, w, "m", "a", time.Second)
		began := time.Now()
		b.Granted(t)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the waiter was woken %v after the renewal for 1 s, want at most 2 s", took)
		}
	})
}

// The step that grants the mutex to the waiter takes effect late, after a renewal of the owner.
func TestRenewalDoesNotHideALateGrant(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		b := conformance.Block(t, w, "m", "b", long)
		w.data.set(func() { w.data.loses, w.data.losesUntil = "m", time.Second })
		if _, _, err := w.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a"}); !isUnavailable(err) {
			t.Errorf("the release without reply: %v; want an UnavailableError", err)
		}
		released := time.Now()
		time.Sleep(100 * time.Millisecond)
		conformance.Renew(t, w, "m", "a", long)
		b.Granted(t)
		if took := time.Since(released); took > 2*time.Second {
			t.Errorf("the waiter was woken after %v, want about 1 s", took)
		}
	})
}

// The reply to a renewal arrives after the end of the lease.
func TestEndOfALeaseIsAnnouncedThoughTheReplyWasLater(t *testing.T) {
	channel := simba.EventChannel("m")
	inWorld(t, []string{channel}, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", long), simba.StatusAcquired)
		if _, err := w.Subscribed(t.Context(), channel, false); err != nil {
			t.Fatal(err)
		}
		w.data.slowly("Renew", 2*time.Second)
		g, err := w.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: time.Second})
		if err != nil || g.Status != simba.StatusLost {
			t.Errorf("GUARD: %+v, %v; want lost", g, err)
		}
		if got, want := w.history("m"), []string{"acquired a", "expired a"}; !slices.Equal(got, want) {
			t.Errorf("the history is %q, want %q", got, want)
		}
	})
}

// The store begins the lease late, so that it has ended by the server's clock, but not by the store's.
func TestLateGrantIsNotReported(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.data.lock("m", 500*time.Millisecond)
		r := request("m", "a", 300*time.Millisecond)
		if o, _, err := w.Acquire(t.Context(), r); !isUnavailable(err) {
			t.Errorf("ACQUIRE whose lease has ended: %+v, %v; want an UnavailableError", o, err)
		}
		w.acquire(r, simba.StatusRenewed)
	})
}

// slowCommit is a Store whose renewals check the lease at once, and commit later.
type slowCommit struct {
	Store
	data  *memory
	takes time.Duration
}

func (s slowCommit) Renew(_ context.Context, mutex string, l *Lease) (bool, error) {
	s.data.lock(mutex, s.takes)
	began := s.data.now()
	time.Sleep(s.takes - time.Millisecond)
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	s.data.rows[mutex].windows(l, began)
	l.Token = s.data.rows[mutex].Token
	return true, nil
}

// The commit of a renewal takes longer than a step waits for a lock, and ends after the lease.
func TestEndIsNotReportedWhileARenewalCommitsSlowly(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.acquire(request("m", "a", time.Second), simba.StatusAcquired)
		w.store = slowCommit{w.store, w.data, lockedStep + 1500*time.Millisecond}
		renewed := make(chan error)
		go func() {
			_, err := w.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long})
			renewed <- err
		}()
		time.Sleep(1200 * time.Millisecond)
		if o, _, err := w.Owner(t.Context(), "m"); err == nil && o.Owner != "a" {
			t.Errorf("OWNER shows %q; want a, whose lease was renewed in time", o.Owner)
		}
		if err := <-renewed; err != nil {
			t.Errorf("GUARD: %v; want no error", err)
		}
		if got, want := w.history("m"), []string{"acquired a"}; !slices.Equal(got, want) {
			t.Errorf("the history is %q, want %q", got, want)
		}
	})
}
