package zookeeper

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// In these tests the creator of a node is delayed, and other servers have to presume its tenure.

// delayedRequest is an ACQUIRE of x at the server far. It has created x's node behind o's node, and
// is delayed until the link heals. If far created o's node, the request has queued x before it is
// delayed. Otherwise it is delayed before it queues x. Meanwhile o's node is deleted, so the server
// near treats x as the owner.
type delayedRequest struct {
	far, near *Backend
	link      *stores.Link
	request   simba.AcquireRequest
	asked     time.Time
	begun     time.Time // x's node existed before this time
	reported  simba.Tenure
	answered  chan error
	out       simba.Outcome // valid after answered
}

// delayRequest makes a delayedRequest. queued says that far creates o's node. from is the method of
// stores.Link that delays the requests or drops their replies. On a busy machine the presumed
// tenure may end too early. Then it tries again with twice the ttl.
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
	until(t, creator, "o's lease node is written", func() bool {
		if !o.writeAt.IsZero() {
			return false
		}
		o.watchAt = time.Time{} // so that only x's request reads o's lease node
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

// presume releases o's tenure, so that near treats x as the owner. It returns false if the presumed
// tenure has ended by then.
func (h *delayedRequest) presume(t *testing.T) (inTime bool) {
	t.Helper()
	if ok, _, err := h.near.Release(context.Background(), simba.ReleaseRequest{Mutex: h.request.Mutex, Contender: "o"}); !ok || err != nil {
		t.Fatalf("RELEASE of o: %v, %v; want true", ok, err)
	}
	h.reported = h.owner(t, h.near)
	if h.reported.Owner == "" && time.Since(h.asked) >= h.request.TTL+h.request.Transition {
		return false
	}
	if h.reported.Owner != "x" {
		t.Fatalf("OWNER after the release of o: %+v; want x", h.reported)
	}
	return true
}

// awaitEnd waits until near reports the end of the presumed tenure.
func (h *delayedRequest) awaitEnd(t *testing.T) {
	t.Helper()
	need.Await(t, "the presumed tenure ends", func() bool { return h.owner(t, h.near).Owner == "" })
}

// mustRenew checks that another ACQUIRE of x renews the presumed tenure's lease.
func (h *delayedRequest) mustRenew(t *testing.T) {
	t.Helper()
	before := time.Now()
	out, _, err := h.far.Acquire(context.Background(), h.request)
	if err != nil || out.Token != h.reported.Token || out.TTL < h.request.TTL-time.Since(before) {
		t.Errorf("ACQUIRE of x: %+v, %v; want the token that OWNER had reported: %+v", out, err, h.reported)
	}
}

func (h *delayedRequest) owner(t *testing.T, b *Backend) simba.Tenure {
	t.Helper()
	o, _, err := b.Owner(context.Background(), h.request.Mutex)
	must(t, err)
	return o
}

// mustKeepWindows checks that x has the presumed tenure with the windows that OWNER reported. from
// is a time before the delayed request continued.
func (h *delayedRequest) mustKeepWindows(t *testing.T, from time.Time) {
	t.Helper()
	if h.out.Status != simba.StatusAcquired || h.out.Token != h.reported.Token {
		t.Fatalf("x's reply: %+v; want acquired with the token that OWNER had reported: %+v", h.out, h.reported)
	}
	if most := h.request.TTL - from.Sub(h.begun); h.out.TTL > most || h.out.Transition > most+h.request.Transition {
		t.Errorf("x's reply: %+v; want at most %v left of the TTL window", h.out, most)
	}
	for name, b := range map[string]*Backend{"far": h.far, "near": h.near} {
		if now := h.owner(t, b); now.Token != h.reported.Token || now.TTLAt != h.reported.TTLAt || now.TransitionAt != h.reported.TransitionAt {
			t.Errorf("OWNER at the %s server: %+v; want the token and windows reported before: %+v",
				name, now, h.reported)
		}
	}
}

func TestDelayedRequestGetsTheReportedWindows(t *testing.T) {
	srv := stores.ZooKeeper(t)
	for name, queued := range map[string]bool{"before it is queued": false, "in the queue": true} {
		t.Run(name, func(t *testing.T) {
			h := delayRequest(t, srv.Addr, queued, time.Minute, (*stores.Link).BlackholeFrom)
			healed := time.Now()
			h.link.Heal()
			must(t, <-h.answered)
			h.mustKeepWindows(t, healed)
		})
		t.Run(name+", and a new tenure after they end", func(t *testing.T) {
			h := delayRequest(t, srv.Addr, queued, 500*time.Millisecond, (*stores.Link).BlackholeFrom)
			h.awaitEnd(t)
			h.link.Heal()
			must(t, <-h.answered)
			if h.out.Status != simba.StatusAcquired || h.out.Token <= h.reported.Token {
				t.Errorf("ACQUIRE of x: %+v; want acquired with a larger token than that of the ended tenure %+v", h.out, h.reported)
			}
		})
	}
	t.Run("a second request renews them", func(t *testing.T) {
		h := delayRequest(t, srv.Addr, true, time.Minute, (*stores.Link).DropRepliesFrom)
		h.link.Heal()
		if err := <-h.answered; err == nil {
			t.Fatalf("ACQUIRE whose reply was dropped returned %+v, want an error", h.out)
		}
		h.mustRenew(t)
	})
}

func TestUnwrittenNodeIsPresumedTheOwners(t *testing.T) {
	far, near := twoServers(t)
	for name, over := range map[string]bool{"while the presumed tenure lasts": false, "a new tenure after the presumed one": true} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			ttl := time.Minute
			if over {
				ttl = 500 * time.Millisecond
			}
			var h *delayedRequest
			unlock := func() {}
			// On a busy machine the presumed tenure may end too early. Then try again.
			for inTime := false; !inTime; ttl *= 2 {
				unlock()
				h = &delayedRequest{far: far, near: near, request: simba.AcquireRequest{Mutex: fmt.Sprint(t.Name(), ttl), Contender: "x", TTL: ttl, Transition: ttl}}
				acquireAs(t, near, simba.AcquireRequest{Mutex: h.request.Mutex, Contender: "o"}, simba.StatusAcquired)
				var err error
				// While the lock is held, far does not write x's lease node.
				unlock, err = far.lockKey(ctx, nodeKey{h.request.Mutex, "x"})
				must(t, err)
				h.asked = time.Now()
				if out, err := far.acquireWithLock(ctx, h.request, nil); err != nil || out.Status != simba.StatusQueued {
					t.Fatalf("ACQUIRE of x: %+v, %v; want queued", out, err)
				}
				inTime = h.presume(t)
			}
			if over {
				h.awaitEnd(t)
			}
			out, err := far.acquireWithLock(ctx, h.request, nil)
			unlock()
			if err != nil || out.Status != simba.StatusAcquired || (out.Token == h.reported.Token) == over {
				t.Errorf("ACQUIRE of x: %+v, %v; OWNER had reported %+v; want acquired, and a new token: %v", out, err, h.reported, over)
			}
			if !over {
				h.mustRenew(t)
				return
			}
			events, _, err := far.History(ctx, simba.HistoryRequest{Mutex: h.request.Mutex, Count: 3})
			must(t, err)
			var kinds []simba.EventKind
			for _, e := range events {
				kinds = append(kinds, e.Kind)
			}
			if want := []simba.EventKind{simba.EventAcquired, simba.EventExpired, simba.EventAcquired}; !slices.Equal(kinds, want) {
				t.Errorf("the last events are %v; want %v", kinds, want)
			}
		})
	}
}

func TestWindowsOfARecoveredNodeBeginWithTheFirstAttempt(t *testing.T) {
	srv := stores.ZooKeeper(t)
	// A reset that is meant for another reply may also hit the second attempt. Then the windows
	// begin with the third one. That hardly happens in each of three tries.
	var late time.Duration
	for try := range 3 {
		if late = windowsAfterSecondAttempt(t, srv.Addr, fmt.Sprint("m", try)); late <= 0 {
			return
		}
	}
	t.Errorf("the windows begin %v after the start of the second attempt; want not after it", late)
}

// windowsAfterSecondAttempt returns when the windows of a node begin. It counts from the start of
// the second attempt to create the node. The network loses the first attempt and the reply to the
// second.
func windowsAfterSecondAttempt(t *testing.T, addr, mutex string) time.Duration {
	t.Helper()
	link := stores.NewLink(t, addr)
	ctx := context.Background()
	b, err := Open(ctx, Options{Servers: link.Addr(), Notices: stubNotices{}, Sessions: 1, SessionTimeout: 20 * time.Second, Timeout: 20 * time.Second})
	must(t, err)
	defer b.Close()
	r := simba.AcquireRequest{Mutex: mutex, Contender: "insists"}
	acquireAs(t, b, r, simba.StatusAcquired) // now the mutex's node exists
	if ok, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: r.Mutex, Contender: r.Contender}); !ok || err != nil {
		t.Fatalf("RELEASE of the contender: %v, %v; want true", ok, err)
	}
	begun := link.BlackholeFrom(r.Contender)
	acquired := make(chan error, 1)
	go func() {
		_, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: r.Mutex, Contender: r.Contender, TTL: time.Minute})
		acquired <- err
	}()
	<-begun
	link.Reset() // the first attempt is lost
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
