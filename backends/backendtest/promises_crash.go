package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	crashContenders = 8
	crashTransition = sec
	// clockSkew is how far two servers may differ about the rest of a lease.
	clockSkew = 100 * ms
)

// Crash kills the store again and again while contenders acquire, renew and release, and starts it
// again. Every reply must hold afterwards: the owner, its token and the least end of its lease, and
// that a released mutex is free. A request without a reply may or may not have been done.
//
// A killed process leaves its files as they are, synced or not. The store's settings decide what
// survives a crash of the machine. They are the promise's condition. This test fails if an engine
// replies before the store has confirmed the change.
//
// Crash is no rule of the suite, since a cluster or Sentinel behaves differently when a store is
// killed.
func Crash(t *testing.T, e Engine, rounds int, kill, start func()) {
	t.Helper()
	tc := newTestCase(t, e)
	tc.engine.Timeout = longTimeout // a busy machine must not fail a request that the store answers
	s := tc.server()
	all := 0
	for round := range rounds {
		r := &crashRound{w: tc, s: s, number: round, stop: make(chan struct{}), enough: make(chan struct{})}
		r.left.Store(int64(20 + rand.IntN(300)))
		var contenders sync.WaitGroup
		for i := range crashContenders {
			contenders.Go(func() { r.work(fmt.Sprintf("c%d", i)) })
		}
		select {
		case <-r.enough:
		case <-time.After(tc.patience()):
			tc.t.Error("the contenders received too few replies in time")
		}
		kill()
		close(r.stop)
		start()
		contenders.Wait()
		// The old server may remember what the store has lost; a new one cannot.
		fresh := tc.server()
		for _, h := range r.all {
			tc.checkSurvived("the old server", s, h)
			tc.checkSurvived("a new server", fresh, h)
		}
		for _, h := range r.all[:min(len(r.all), crashContenders)] {
			if !h.open { // otherwise the pending request may still change it
				tc.checkNextToken(fresh, h)
			}
		}
		all += len(r.all)
		fresh.close()
		if t.Failed() {
			break
		}
	}
	t.Logf("%d crashes, %d mutexes", rounds, all)
	if all < rounds*crashContenders {
		t.Errorf("the contenders used only %d mutexes", all)
	}
}

// crashRound is the work until one crash.
type crashRound struct {
	w      *testCase
	s      *server
	number int
	stop   chan struct{} // closed when the store is killed
	left   atomic.Int64  // replies until the crash
	enough chan struct{} // closed when left is 0

	mu  sync.Mutex // guards the fields below
	all []belief
}

// belief is what a contender knows of a mutex that only it uses.
type belief struct {
	mutex, contender string
	token            uint64    // of its tenure; 0 = no reply named a token
	until            time.Time // the least end of its lease
	released         bool      // the reply said that the mutex is released
	open             bool      // its last request has no reply
}

// work acquires new mutexes, renews some and releases some, until the store is killed.
func (r *crashRound) work(contender string) {
	for n := 0; ; n++ {
		select {
		case <-r.stop:
			return
		default:
		}
		h := belief{mutex: fmt.Sprintf("%s-%s-%d", r.name(), contender, n), contender: contender}
		err := r.use(&h)
		h.open = err != nil
		r.mu.Lock()
		r.all = append(r.all, h)
		r.mu.Unlock()
		if err == nil {
			continue
		}
		if unavailable := (*simba.UnavailableError)(nil); !errors.As(err, &unavailable) {
			r.w.t.Errorf("%s: %v; want no error, or an UnavailableError", contender, err)
		}
		return
	}
}

// name returns a prefix for the mutexes of this round.
func (r *crashRound) name() string { return fmt.Sprintf("m-%s-%d", r.w.prefix, r.number) }

func (r *crashRound) use(h *belief) error {
	ctx := context.Background()
	ttl := long
	asked := time.Now()
	o, _, err := r.s.b.Acquire(ctx, simba.AcquireRequest{Mutex: h.mutex, Contender: h.contender, TTL: ttl, Transition: crashTransition, NoQueue: true})
	if err = r.replied(o.Seq, err); err != nil {
		return err
	}
	if o.Status != simba.StatusAcquired {
		return fmt.Errorf("ACQUIRE of a new mutex: %s; want acquired", show(o))
	}
	h.token, h.until = o.Token, asked.Add(ttl)
	if rand.IntN(3) == 0 {
		asked = time.Now()
		o, err := r.s.b.Guard(ctx, simba.GuardRequest{Mutex: h.mutex, Contender: h.contender, TTL: 2 * ttl, Transition: crashTransition, Token: h.token})
		if err = r.replied(o.Seq, err); err != nil {
			return err
		}
		if o.Status != simba.StatusRenewed || o.Token != h.token {
			return fmt.Errorf("GUARD with token %d: %s; want renewed with that token", h.token, show(o))
		}
		h.until = asked.Add(2 * ttl)
	}
	if rand.IntN(3) == 0 {
		owned, seq, err := r.s.b.Release(ctx, simba.ReleaseRequest{Mutex: h.mutex, Contender: h.contender, Token: h.token})
		if err = r.replied(seq, err); err != nil {
			return err
		}
		if !owned {
			return fmt.Errorf("RELEASE with token %d returned 0, want 1", h.token)
		}
		h.released = true
	}
	return nil
}

// replied commits and counts a reply.
func (r *crashRound) replied(seq simba.Seq, err error) error {
	if err == nil {
		err = r.s.b.Commit(context.Background(), seq)
	}
	if err == nil && r.left.Add(-1) == 0 {
		close(r.enough)
	}
	return err
}

// checkSurvived compares what a server reports after the crash with the replies before it.
func (tc *testCase) checkSurvived(who string, s *server, h belief) {
	tc.t.Helper()
	o := s.ownerAgain(h.mutex)
	now := time.Now()
	switch {
	case o.Owner != "" && o.Owner != h.contender:
		tc.t.Errorf("%s reports for %s: %+v, but only %s used it", who, h.mutex, o, h.contender)
	case h.open && (h.token == 0 || o.Owner == ""):
		// The request without a reply may or may not have been done.
	case h.released && o.Owner != "":
		tc.t.Errorf("%s reports for %s: %+v, but the reply to %s was that it released token %d", who, h.mutex, o, h.contender, h.token)
	case h.released:
	case o.Owner == "" || o.Token != h.token:
		tc.t.Errorf("%s reports for %s: %+v, but the reply to %s was that it owns it with token %d", who, h.mutex, o, h.contender, h.token)
	case o.TTL < h.until.Sub(now)-clockSkew:
		tc.t.Errorf("%s reports that %s is %s's for another %v, but its reply leaves %v", who, h.mutex, h.contender, o.TTL, h.until.Sub(now))
	}
}

// checkNextToken ends the contender's tenure and checks that the next one has a larger token.
func (tc *testCase) checkNextToken(s *server, h belief) {
	tc.t.Helper()
	s.release(h.mutex, h.contender)
	if o := s.mustAcquire(h.mutex, "next", long, 0); o.Token <= h.token {
		tc.t.Errorf("%s: the next token is %d, the one before was %d; want a larger one", h.mutex, o.Token, h.token)
	}
}
