package zookeeper

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// What holds of a tenure that others had to presume, since the server that made its node was held up.

// heldUp is a request of x that has made its node behind o's, and is held up until the link heals: as it looks whether o may be
// passed, or, if its own server keeps o's node and knows that, in its place. Since o is gone meanwhile, the other server takes x for
// the owner.
type delayedRequest struct {
	far, near *Backend
	link      *stores.Link
	request   simba.AcquireRequest
	asked     time.Time
	begun     time.Time // its node was there
	told      simba.Tenure
	answered  chan error
	out       simba.Outcome // after answered
}

// holdUp makes both windows longer than ttl if a busy machine lets them end before the other server
// tells of them.
func delayRequest(t *testing.T, addr string, queued bool, ttl time.Duration, from func(*stores.Link, string) <-chan struct{}) *delayedRequest {
	t.Helper()
	for ; ; ttl *= 2 {
		if h := tryDelayRequest(t, addr, queued, ttl, from); h.presume(t) {
			return h
		}
	}
}

func tryDelayRequest(t *testing.T, addr string, queued bool, ttl time.Duration, from func(*stores.Link, string) <-chan struct{}) *delayedRequest {
	t.Helper()
	ctx := context.Background()
	h := &delayedRequest{
		link:     stores.NewLink(t, addr),
		request:  simba.AcquireRequest{Mutex: fmt.Sprint(t.Name(), ttl), Contender: "x", TTL: ttl, Transition: ttl},
		answered: make(chan error, 1),
	}
	for b, o := range map[**Backend]Options{
		&h.near: {Servers: addr},
		&h.far:  {Servers: h.link.Addr(), Sessions: 1, SessionTimeout: 20 * time.Second, Timeout: 20 * time.Second, QueueGrace: time.Minute},
	} {
		o.Notices = stubNotices{}
		opened, err := Open(ctx, o)
		must(t, err)
		t.Cleanup(func() { opened.Close() })
		*b = opened
	}
	creator := h.near
	if queued {
		creator = h.far
	}
	acquireAs(t, creator, simba.AcquireRequest{Mutex: h.request.Mutex, Contender: "o"}, simba.StatusAcquired)
	o := creator.nodeAt(nodeKey{h.request.Mutex, "o"})
	until(t, creator, "o's lease is written", func() bool {
		if !o.writeAt.IsZero() {
			return false
		}
		o.watchAt = time.Time{} // so that nobody but x's request reads it
		return true
	})
	h.asked = time.Now()
	begun := from(h.link, string(o.guid))
	go func() {
		var err error
		h.out, _, err = h.far.Acquire(ctx, h.request)
		h.answered <- err
	}()
	<-begun
	h.begun = time.Now()
	return h
}

// presume has o go, so that the other server takes x for the owner. It reports false if the tenure
// was over by then.
func (h *delayedRequest) presume(t *testing.T) (inTime bool) {
	t.Helper()
	if ok, _, err := h.near.Release(context.Background(), simba.ReleaseRequest{Mutex: h.request.Mutex, Contender: "o"}); !ok || err != nil {
		t.Fatalf("o: %v, %v", ok, err)
	}
	h.told = h.owner(t, h.near)
	if h.told.Owner == "" && time.Since(h.asked) >= h.request.TTL+h.request.Transition {
		return false
	}
	if h.told.Owner != "x" {
		t.Fatalf("the owner is told to be %+v", h.told)
	}
	return true
}

// ends returns when the other server tells that the presumed tenure is over.
func (h *delayedRequest) awaitEnd(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); h.owner(t, h.near).Owner != ""; {
		if time.Now().After(deadline) {
			t.Fatal("the presumed tenure does not end")
		}
	}
}

// asksAgain checks that another request has the windows begin anew.
func (h *delayedRequest) mustRenew(t *testing.T) {
	t.Helper()
	before := time.Now()
	out, _, err := h.far.Acquire(context.Background(), h.request)
	if err != nil || out.Token != h.told.Token || out.TTL < h.request.TTL-time.Since(before) {
		t.Errorf("x: %+v, %v, after %+v was told", out, err, h.told)
	}
}

func (h *delayedRequest) owner(t *testing.T, b *Backend) simba.Tenure {
	t.Helper()
	o, _, err := b.Owner(context.Background(), h.request.Mutex)
	must(t, err)
	return o
}

// goesOn checks that the presumed tenure is x's with the windows that were told; from is before it went on.
func (h *delayedRequest) mustKeepWindows(t *testing.T, from time.Time) {
	t.Helper()
	if h.out.Status != simba.StatusAcquired || h.out.Token != h.told.Token {
		t.Fatalf("x: %+v, after %+v was told", h.out, h.told)
	}
	if most := h.request.TTL - from.Sub(h.begun); h.out.TTL > most || h.out.Transition > most+h.request.Transition {
		t.Errorf("x: %+v, though at most %v can be left", h.out, most)
	}
	for name, b := range map[string]*Backend{"far": h.far, "near": h.near} {
		if now := h.owner(t, b); now.Token != h.told.Token || now.TTLAt != h.told.TTLAt || now.TransitionAt != h.told.TransitionAt {
			t.Errorf("the %s server tells %+v, after %+v was told", name, now, h.told)
		}
	}
}

func TestDelayedRequestGetsTheReportedWindows(t *testing.T) {
	srv := stores.ZooKeeper(t)
	for name, queued := range map[string]bool{"before it has a place": false, "in its place": true} {
		t.Run(name, func(t *testing.T) {
			h := delayRequest(t, srv.Addr, queued, time.Minute, (*stores.Link).BlackholeFrom)
			healed := time.Now()
			h.link.Heal()
			must(t, <-h.answered)
			h.mustKeepWindows(t, healed)
		})
		t.Run(name+", and another tenure when those are over", func(t *testing.T) {
			h := delayRequest(t, srv.Addr, queued, 500*time.Millisecond, (*stores.Link).BlackholeFrom)
			h.awaitEnd(t)
			h.link.Heal()
			must(t, <-h.answered)
			if h.out.Status != simba.StatusAcquired || h.out.Token <= h.told.Token {
				t.Errorf("x: %+v, after %+v was told to be over", h.out, h.told)
			}
		})
	}
	t.Run("another one renews them", func(t *testing.T) {
		h := delayRequest(t, srv.Addr, true, time.Minute, (*stores.Link).DropRepliesFrom)
		h.link.Heal()
		if err := <-h.answered; err == nil {
			t.Fatalf("x: %+v", h.out)
		}
		h.mustRenew(t)
	})
}

func TestUnwrittenNodeIsPresumedTheOwners(t *testing.T) {
	far, near := twoServers(t)
	for name, over := range map[string]bool{"while it may be told of": false, "another tenure after that": true} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			ttl := time.Minute
			if over {
				ttl = 500 * time.Millisecond
			}
			var h *delayedRequest
			unlock := func() {}
			// A busy machine may let the presumed tenure end too soon.
			for inTime := false; !inTime; ttl *= 2 {
				unlock()
				h = &delayedRequest{far: far, near: near, request: simba.AcquireRequest{Mutex: fmt.Sprint(t.Name(), ttl), Contender: "x", TTL: ttl, Transition: ttl}}
				acquireAs(t, near, simba.AcquireRequest{Mutex: h.request.Mutex, Contender: "o"}, simba.StatusAcquired)
				var err error
				unlock, err = far.lockKey(ctx, nodeKey{h.request.Mutex, "x"}) // so it is not written
				must(t, err)
				h.asked = time.Now()
				if out, err := far.acquireWithLock(ctx, h.request, nil); err != nil || out.Status != simba.StatusQueued {
					t.Fatalf("x: %+v, %v", out, err)
				}
				inTime = h.presume(t)
			}
			if over {
				h.awaitEnd(t)
			}
			out, err := far.acquireWithLock(ctx, h.request, nil)
			unlock()
			if err != nil || out.Status != simba.StatusAcquired || (out.Token == h.told.Token) == over {
				t.Errorf("x: %+v, %v, after %+v was told", out, err, h.told)
			}
			if !over {
				h.mustRenew(t)
			}
		})
	}
}

func TestWindowsOfARecoveredNodeBeginWithTheFirstAttempt(t *testing.T) {
	srv := stores.ZooKeeper(t)
	// A reset that comes for the reply to a request before may take the second attempt along. Then
	// the third makes the node, and the windows begin with that. It happens hardly each time.
	var late time.Duration
	for try := range 3 {
		if late = windowsAfterSecondAttempt(t, srv.Addr, fmt.Sprint("m", try)); late <= 0 {
			return
		}
	}
	t.Errorf("its windows begin %v after the second attempt may have begun", late)
}

// sinceTheSecondAttempt returns how long after the second attempt to make a node its windows begin,
// where the first one is lost, and then a reply.
func windowsAfterSecondAttempt(t *testing.T, addr, mutex string) time.Duration {
	t.Helper()
	link := stores.NewLink(t, addr)
	ctx := context.Background()
	b, err := Open(ctx, Options{Servers: link.Addr(), Notices: stubNotices{}, Sessions: 1, SessionTimeout: 20 * time.Second, Timeout: 20 * time.Second})
	must(t, err)
	defer b.Close()
	r := simba.AcquireRequest{Mutex: mutex, Contender: "insists"}
	acquireAs(t, b, r, simba.StatusAcquired) // so the mutex' node is there
	if ok, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: r.Mutex, Contender: r.Contender}); !ok || err != nil {
		t.Fatalf("its release: %v, %v", ok, err)
	}
	begun := link.BlackholeFrom(r.Contender)
	acquired := make(chan error, 1)
	go func() {
		_, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: r.Mutex, Contender: r.Contender, TTL: time.Minute})
		acquired <- err
	}()
	<-begun
	link.Reset() // the first is lost
	again := time.Now()
	lost := link.DropReplyTo(r.Contender)
	link.Delay(0)
	<-lost
	must(t, <-acquired)
	n := b.nodeAt(nodeKey{r.Mutex, r.Contender})
	b.mu.Lock()
	defer b.mu.Unlock()
	return n.since.Sub(again)
}
