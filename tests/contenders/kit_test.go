package contenders

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The cases are those of Simba's compatibility kit for its backends.
func TestEachEnginePassesSimbasCompatibilityKit(t *testing.T) {
	for _, engine := range simbatest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := simbatest.StartOn(t, engine)
			t.Run("a contender that starts acquires, and one that stops releases", func(t *testing.T) { t.Parallel(); startStop(t, s) })
			t.Run("a contender may be started again", func(t *testing.T) { t.Parallel(); restart(t, s) })
			t.Run("an owner keeps the mutex over many ttl", func(t *testing.T) { t.Parallel(); guard(t, s) })
			t.Run("of ten contenders there are never two owners", func(t *testing.T) { t.Parallel(); tenContenders(t, s) })
			t.Run("the leader alone works on the schedule", func(t *testing.T) { t.Parallel(); schedule(t, s) })
		})
	}
}

// stableLease is a window so long that no lease ends during a test, even on a busy machine.
const stableLease = time.Minute

func stable(mutex string) client.ContenderConfig {
	return client.ContenderConfig{Mutex: mutex, TTL: stableLease, Transition: stableLease}
}

func startStop(t *testing.T, s *simbatest.Server) {
	c := newClient(t, s.Addr)
	k := newRecorded(t, c, stable("start-stop"))
	k.start(t)
	state := within(t, "OnAcquired is called", k.acquired)
	if state.Before.ID == k.ID() || state.After.ID != k.ID() || !k.IsOwner() {
		t.Errorf("OnAcquired gets %+v, and IsOwner returns %v; want a change to %s, and true", state, k.IsOwner(), k.ID())
	}
	if o, err := c.Owner(t.Context(), "start-stop"); err != nil || o.ID != k.ID() || o.Token != k.token() {
		t.Errorf("Owner returns %+v, %v, want %s with token %d", o, err, k.ID(), k.token())
	}
	k.stop(t)
	state = within(t, "OnReleased is called", k.released)
	if state.Before.ID != k.ID() || !state.After.IsZero() || k.IsOwner() {
		t.Errorf("OnReleased gets %+v, and IsOwner returns %v; want a change to no owner, and false", state, k.IsOwner())
	}
	if o, err := c.Owner(t.Context(), "start-stop"); err != nil || !o.IsZero() {
		t.Errorf("after Stop, Owner returns %+v, %v, want no owner", o, err)
	}
}

func restart(t *testing.T, s *simbatest.Server) {
	k := newRecorded(t, newClient(t, s.Addr), stable("restart"))
	var last uint64
	for range 3 {
		k.start(t)
		within(t, "OnAcquired is called", k.acquired)
		if token := k.token(); token <= last {
			t.Errorf("token %d follows token %d, want a larger token", token, last)
		}
		last = k.token()
		k.stop(t)
		within(t, "OnReleased is called", k.released)
	}
	k.noCallbacks(t)
}

func guard(t *testing.T, s *simbatest.Server) {
	// On a busy machine a renewal may be late by seconds.
	const ttl, transition = 500 * time.Millisecond, 20 * time.Second
	c := newClient(t, s.Addr)
	k := newRecorded(t, c, client.ContenderConfig{Mutex: "guard", TTL: ttl, Transition: transition})
	k.start(t)
	within(t, "OnAcquired is called", k.acquired)
	other := newRecorded(t, newClient(t, s.Addr), client.ContenderConfig{Mutex: "guard", TTL: ttl, Transition: transition})
	other.start(t)
	token, until := k.token(), k.Owner().TransitionAt
	select {
	case <-k.released:
		t.Error("OnReleased is called while the owner renews")
	case <-other.acquired:
		t.Error("OnAcquired of the other contender is called while the owner renews")
	case <-time.After(12 * ttl):
	}
	if o, err := c.Owner(t.Context(), "guard"); err != nil || o.ID != k.ID() || o.Token != token || !o.TransitionAt.After(until) {
		t.Errorf("after the renewals, Owner returns %+v, %v, want %s with token %d and a later end", o, err, k.ID(), token)
	}
	k.stop(t)
	within(t, "OnAcquired is called", other.acquired)
	other.stop(t)
	if n := serverSaw(t, changes(t, connect(t, s.Addr), "guard"), nil); n != 2 {
		t.Errorf("the server had %d tenures, want 2", n)
	}
}

// tenContenders runs ten contenders of a mutex for at least 30 s, until each has owned it. They
// resign now and then. Two of them lose their connections at times.
func tenContenders(t *testing.T, s *simbatest.Server) {
	const mutex, contenders, cutOff, length = "ten", 10, 2, 30 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	var noted tenures
	for i := range contenders {
		id := fmt.Sprint("c", i)
		if i < cutOff {
			link := stores.NewLink(t, s.Addr)
			k := newPasser(t, newClient(t, link.Addr()), mutex, id, 5*passerLease, &noted)
			all.Go(func() { k.run(ctx) })
			all.Go(func() { cut(ctx, k, link) })
			continue
		}
		k := newPasser(t, newClient(t, s.Addr), mutex, id, rand.N(passerLease), &noted)
		all.Go(func() { k.run(ctx) })
	}
	time.Sleep(length)
	for end := time.Now().Add(simbatest.Patience); noted.owners() < contenders && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	all.Wait()
	tenures := noted.neverTwo(t)
	history := changes(t, connect(t, s.Addr), mutex)
	n := serverSaw(t, history, tenures)
	owners, ends := make(map[string]int), make(map[string]int)
	for _, s := range tenures {
		owners[s.owner]++
	}
	for _, c := range history {
		ends[c.event]++
	}
	if len(owners) != contenders {
		t.Errorf("%d of %d contenders have owned the mutex; tenures: %v", len(owners), contenders, owners)
	}
	t.Logf("the contenders recorded %d tenures, the server %d: %v, %v", len(tenures), n, ends, owners)
}

// cut repeatedly breaks the link of k while k is the owner, each time for longer than a lease.
func cut(ctx context.Context, k *passer, link *stores.Link) {
	for n := 0; ctx.Err() == nil; n++ {
		if time.Sleep(50 * time.Millisecond); !k.IsOwner() {
			continue
		}
		if n%2 == 0 {
			link.Blackhole()
		} else {
			link.Refuse()
		}
		time.Sleep(passerLease + rand.N(passerLease))
		link.Heal()
	}
}

const passerLease = 800 * time.Millisecond

// passer owns the mutex for some time, and then resigns.
type passer struct {
	*client.Contender
	tired chan struct{} // gets a value when it has owned the mutex for long enough
}

func newPasser(t testing.TB, c *client.Client, mutex, id string, want time.Duration, noted *tenures) *passer {
	t.Helper()
	p := &passer{tired: make(chan struct{}, 1)}
	k, err := c.NewContender(client.ContenderConfig{
		Mutex: mutex, ID: id, TTL: passerLease / 2, Transition: passerLease / 2,
		OnAcquired: func(ctx context.Context, _ client.State) {
			enough := time.AfterFunc(want, func() {
				select {
				case p.tired <- struct{}{}:
				default:
				}
			})
			defer enough.Stop()
			noted.watch(ctx, id)
		},
		OnReleased: func(client.State) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Contender = k
	return p
}

func (p *passer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.Start(); err != nil {
			panic(err) // a stopped contender can always start
		}
		select {
		case <-p.tired:
		case <-ctx.Done():
		}
		_ = p.Stop(context.Background()) // returns an error if its link is broken
	}
}
