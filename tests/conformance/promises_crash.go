package conformance

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
	// clockSkew is how much two servers may differ about the rest of a lease.
	clockSkew = 100 * ms
)

// Crash repeatedly kills and starts the store while contenders acquire, renew and release. After
// each start the servers must confirm the replies: owner, token and end of the TTL window. A
// released mutex must be free. A request without a reply may have been done or not.
//
// The test fails if an engine replies before the store has confirmed the change. It cannot find a
// missing fsync, since a killed process leaves its files as they are. So the promise has the
// store's settings as its condition.
//
// Crash is not a rule of the suite, since killing one store of a cluster or of Sentinel has other
// effects.
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
		// The old server may remember changes that the store has lost. A new server cannot.
		fresh := tc.server()
		for _, h := range r.all {
			tc.checkSurvived("the old server", s, h)
			tc.checkSurvived("a new server", fresh, h)
		}
		for _, h := range r.all[:min(len(r.all), crashContenders)] {
			if !h.open { // a pending request may still change the mutex
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
		t.Errorf("the contenders used only %d mutexes, want at least %d", all, rounds*crashContenders)
	}
}

// crashRound is the work of the contenders until one crash.
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

// belief is the state of a mutex according to the replies to its only contender.
type belief struct {
	mutex, contender string
	token            uint64    // of the contender's tenure; 0 = no reply named a token
	until            time.Time // the earliest possible end of the TTL window
	released         bool      // the reply said that the mutex is released
	open             bool      // the contender's last request has no reply
}

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
		err = r.s.b.Commit(seq)
	}
	if err == nil && r.left.Add(-1) == 0 {
		close(r.enough)
	}
	return err
}

func (tc *testCase) checkSurvived(who string, s *server, h belief) {
	tc.t.Helper()
	o := s.ownerAgain(h.mutex)
	now := time.Now()
	switch {
	case o.Owner != "" && o.Owner != h.contender:
		tc.t.Errorf("OWNER of %s at %s: %+v; want %s, its only contender", h.mutex, who, o, h.contender)
	case h.open && (h.token == 0 || o.Owner == ""):
		// The request without a reply may or may not have been done.
	case h.released && o.Owner != "":
		tc.t.Errorf("OWNER of %s at %s: %+v; want no owner, since RELEASE of %s with token %d returned 1", h.mutex, who, o, h.contender, h.token)
	case h.released:
	case o.Owner == "" || o.Token != h.token:
		tc.t.Errorf("OWNER of %s at %s: %+v; want %s with token %d, as ACQUIRE had returned", h.mutex, who, o, h.contender, h.token)
	case o.TTL < h.until.Sub(now)-clockSkew:
		tc.t.Errorf("OWNER of %s at %s: %s has %v left; want %v by the last reply", h.mutex, who, h.contender, o.TTL, h.until.Sub(now))
	}
}

func (tc *testCase) checkNextToken(s *server, h belief) {
	tc.t.Helper()
	s.release(h.mutex, h.contender)
	if o := s.mustAcquire(h.mutex, "next", long, 0); o.Token <= h.token {
		tc.t.Errorf("ACQUIRE of %s: token %d; want one above the previous token %d", h.mutex, o.Token, h.token)
	}
}
