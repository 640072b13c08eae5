package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

// These are the windows of all requests while the network fails. All requests have the same
// windows, so that a late request cannot shorten a lease. contender.scale lengthens them for a slow
// store.
const (
	failingTTL        = 60 * ms
	failingTransition = 20 * ms
)

// enoughTenures is the least number of tenures for a meaningful run.
const enoughTenures = 4

func hammerRules() []rule {
	return []rule{
		{"8", "each of many concurrent waiters acquires once", 0, func(tc *testCase) {
			s := tc.server()
			for range 3 {
				rush(tc, 32, s)
			}
		}},
		{"8s", "each of many concurrent waiters at two servers acquires once", shared, func(tc *testCase) {
			one, two, _ := tc.pair()
			rush(tc, 16, one, two)
		}},
		{"1", "many contenders never own one mutex at the same time", 0, func(tc *testCase) {
			tc.mustBeSafe(2*sec, nil, tc.server())
		}},
		{"1", "many contenders of two servers never own one mutex at the same time", shared, func(tc *testCase) {
			one, two, _ := tc.pair()
			tc.mustBeSafe(2*sec, nil, one, two)
		}},
		{"1", "many contenders never own one mutex at the same time while the network fails", shared | link, func(tc *testCase) {
			one, two, _ := tc.pair()
			l := tc.engine.Link
			tc.mustBeSafe(4*sec, every(150*ms, func(i int) {
				switch i % 8 {
				case 0, 4:
					l.Reset()
				case 1:
					l.Delay(20 * ms)
				case 3:
					l.DropReplies()
				case 5:
					l.Blackhole()
				case 7:
					l.DropNextReply()
				default:
					l.Heal()
				}
			}), one, two)
		}},
	}
}

// rush lets many contenders concurrently acquire a new mutex, wait for it and release it. Each must
// get the reply acquired, never renewed.
func rush(tc *testCase, contenders int, servers ...*server) {
	tc.t.Helper()
	m := tc.mutex()
	ctx := context.Background()
	tokens := make([]uint64, contenders)
	var all sync.WaitGroup
	for i := range contenders {
		s, name := servers[i%len(servers)], fmt.Sprintf("c%d", i)
		all.Go(func() {
			x := &waiter{woken: make(chan struct{})}
			o, ticket, err := s.b.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: name, TTL: long, Waiter: x})
			if ticket != nil {
				select {
				case <-x.woken:
				case <-time.After(2 * tc.patience()):
					tc.t.Errorf("%s was not woken", name)
				}
				o, err = ticket.End(simba.EndWoken)
			}
			if err == nil {
				err = s.b.Commit(o.Seq)
			}
			if err != nil || o.Status != simba.StatusAcquired || o.Owner != name {
				tc.t.Errorf("ACQUIRE … WAIT of %s: %s, %v; want acquired", name, show(o), err)
				return
			}
			tokens[i] = o.Token
			owned, seq, err := s.b.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: name})
			if err == nil {
				err = s.b.Commit(seq)
			}
			if err != nil || !owned {
				tc.t.Errorf("RELEASE of %s: %v, %v; want true", name, owned, err)
			}
		})
	}
	all.Wait()
	slices.Sort(tokens)
	if len(slices.Compact(tokens)) != contenders {
		tc.t.Error("two tenures have the same token")
	}
	for _, s := range servers {
		tc.equal("queue", s.queue(m), nil)
	}
}

// ownership is the time in which a contender was sure to own the mutex. It begins with the reply.
// It ends with the release, or with the end of the lease in the last reply. That lease counts from
// the time when the contender sent the request.
type ownership struct {
	mutex, contender string
	token            uint64
	from, to         time.Time
}

// Hammer lets many contenders of two servers acquire, hold, renew, abandon and release two mutexes
// for the time d. Meanwhile it calls inflict, which disturbs the store or the network, once in each
// interval. Requests may fail. Afterwards each mutex must be available again. No two contenders may
// have been sure to own a mutex at the same time, and no later tenure may have a smaller token.
func Hammer(t *testing.T, e Engine, d, interval time.Duration, inflict func()) {
	t.Helper()
	tc := newTestCase(t, e)
	one, two, _ := tc.pair()
	tc.mustBeSafe(d, every(interval, func(int) { inflict() }), one, two)
}

// every returns a function that calls inflict in each interval.
func every(interval time.Duration, inflict func(i int)) (disturb func(stop <-chan struct{})) {
	return func(stop <-chan struct{}) {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(interval):
				inflict(i)
			}
		}
	}
}

// hammer is Hammer with the given servers. disturb disturbs the store or the network until stop is
// closed; nil = no disturbance. hammer returns a text for each violation.
func (tc *testCase) hammer(d time.Duration, disturb func(stop <-chan struct{}), servers ...*server) (count int, violations []string) {
	tc.t.Helper()
	const contenders = 6 // of each server
	mutexes := []string{tc.mutex(), tc.mutex()}
	stop := make(chan struct{})
	scale := tc.scale(servers...)
	var held atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	var owned []ownership
	for i, s := range servers {
		for k := range contenders {
			h := &contender{s: s, name: fmt.Sprintf("c%d-%d", i, k), failing: disturb != nil, scale: scale, held: &held}
			all.Go(func() {
				if err := h.run(mutexes, k, stop); err != nil {
					tc.t.Errorf("%s: %v", h.name, err)
				}
				mu.Lock()
				defer mu.Unlock()
				owned = append(owned, h.owned...)
			})
		}
	}
	if disturb != nil {
		all.Go(func() { disturb(stop) })
	}
	pause(d)
	for end := time.Now().Add(tc.patience()); held.Load() < enoughTenures && time.Now().Before(end); {
		pause(50 * ms)
	}
	close(stop)
	all.Wait()
	if l := tc.engine.Link; l != nil {
		l.Heal()
	}
	for _, m := range mutexes {
		for _, s := range servers {
			tc.await("the mutex is available again", func() bool {
				o, _, err := s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: m, Contender: "last", TTL: renewable, NoQueue: true})
				return err == nil && o.Owner == "last"
			})
		}
	}
	return len(owned), findViolations(owned)
}

// scale returns the factor by which leases must be longer than on a fast machine, so that replies
// arrive before the leases end.
func (tc *testCase) scale(servers ...*server) int {
	tc.t.Helper()
	slowest := time.Duration(0)
	for _, s := range servers {
		m := tc.mutex()
		for range 3 {
			asked := time.Now()
			s.mustAcquire(m, "a", long, 0)
			slowest = max(slowest, time.Since(asked))
			s.mustRelease(m, "a")
		}
	}
	return int(1 + 3*slowest/failingTTL)
}

func (tc *testCase) mustBeSafe(d time.Duration, disturb func(stop <-chan struct{}), servers ...*server) {
	tc.t.Helper()
	count, violations := tc.hammer(d, disturb, servers...)
	tc.t.Logf("%d tenures", count)
	if count < enoughTenures {
		tc.t.Errorf("the contenders had only %d tenures, want at least %d", count, enoughTenures)
	}
	for _, f := range violations {
		tc.t.Error(f)
	}
}

// findViolations returns a text for each two successive tenures of a mutex that overlap, or whose
// tokens do not grow.
func findViolations(owned []ownership) (violations []string) {
	if len(owned) == 0 {
		return nil
	}
	slices.SortFunc(owned, func(a, b ownership) int { return a.from.Compare(b.from) })
	start := owned[0].from
	all := map[string][]tenures.Tenure{}
	for _, s := range owned {
		t := tenures.Tenure{Owner: s.contender, Token: s.token, From: s.from.Sub(start), To: s.to.Sub(start) - rounding}
		list := all[s.mutex]
		last := len(list) - 1
		same := last >= 0 && list[last].Token == s.token
		switch {
		case !s.from.Before(s.to): // after a late reply the contender cannot be sure to own the mutex
			if same { // it may release the mutex, so the earlier ownership ends here
				list[last].To = min(list[last].To, t.From)
			}
		case same && list[last].Owner == t.Owner: // it has renewed its tenure, and only the last reply counts
			list[last].To = t.To
		default:
			all[s.mutex] = append(list, t)
		}
	}
	for mutex, list := range all {
		for _, wrong := range append(tenures.Overlaps(list), tenures.Descents(list)...) {
			violations = append(violations, mutex+": "+wrong)
		}
	}
	return violations
}

type contender struct {
	s       *server
	name    string
	failing bool          // requests may fail
	scale   int           // see testCase.scale
	held    *atomic.Int64 // counts the tenures of all contenders
	owned   []ownership
}

func (h *contender) scaled(millis int) time.Duration { return time.Duration(millis*h.scale) * ms }

func (h *contender) failingWindows() (ttl, transition time.Duration) {
	return failingTTL * time.Duration(h.scale), failingTransition * time.Duration(h.scale)
}

func (h *contender) run(mutexes []string, n int, stop <-chan struct{}) error {
	for ; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := h.attempt(mutexes[n%len(mutexes)]); err != nil {
			return err
		}
	}
}

// attempt sends an ACQUIRE of a random kind, and holds the mutex if it gets it.
func (h *contender) attempt(m string) error {
	ctx := context.Background()
	r := simba.AcquireRequest{
		Mutex: m, Contender: h.name,
		TTL: h.scaled(20 + rand.IntN(60)), Transition: h.scaled(rand.IntN(40)),
		NoQueue: rand.IntN(3) == 0,
	}
	if h.failing {
		r.TTL, r.Transition = h.failingWindows()
	}
	x := &waiter{woken: make(chan struct{})}
	if !r.NoQueue && rand.IntN(2) == 0 {
		r.Waiter = x
	}
	asked := time.Now()
	h.shortenOwned(m, asked.Add(r.TTL+r.Transition))
	o, ticket, err := h.s.b.Acquire(ctx, r)
	if err != nil {
		return h.excuse(err, asked, r.TTL+r.Transition)
	}
	for o.Status == simba.StatusWaiting { // End returns this status, too, if the lease has ended
		why := simba.EndWoken
		if !h.failing && rand.IntN(8) == 0 {
			why = simba.EndGone
		} else {
			select {
			case <-x.woken:
			case <-time.After(h.scaled(50 + rand.IntN(500))):
				why = simba.EndTimeout
			}
		}
		begun := asked // the earliest start of a lease that was granted meanwhile
		asked = time.Now()
		x.rearm()
		o, err = ticket.End(why)
		if err != nil {
			return h.excuse(err, begun, r.TTL+r.Transition)
		}
	}
	if err := h.s.b.Commit(o.Seq); err != nil {
		return err
	}
	if o.Status != simba.StatusAcquired && o.Status != simba.StatusRenewed {
		if o.Owner == h.name && !h.failing {
			return fmt.Errorf("the contender owns the mutex, but the reply is %s", show(o))
		}
		pause(time.Duration(rand.IntN(5)) * ms)
		return nil
	}
	return h.hold(ownership{mutex: m, contender: h.name, token: o.Token, from: time.Now(), to: asked.Add(o.Transition)})
}

// hold keeps the mutex for a moment, and ends the tenure in a random way.
func (h *contender) hold(s ownership) error {
	ctx := context.Background()
	h.held.Add(1)
	defer func() { h.owned = append(h.owned, s) }()
	pause(time.Duration(rand.IntN(10)) * ms)
	if rand.IntN(3) == 0 {
		g := simba.GuardRequest{Mutex: s.mutex, Contender: h.name, TTL: h.scaled(50), Token: s.token}
		if h.failing {
			g.TTL, g.Transition = h.failingWindows()
		}
		asked := time.Now()
		o, err := h.s.b.Guard(ctx, g)
		answered := time.Now()
		if err != nil || o.Status != simba.StatusRenewed {
			// The store may have renewed the lease, and the new lease may have ended before the
			// reply.
			s.to = earlier(s.to, asked.Add(g.TTL+g.Transition))
		}
		switch {
		case err != nil:
			return h.excuse(err, asked, g.TTL+g.Transition)
		case o.Status == simba.StatusRenewed:
			s.to = asked.Add(o.Transition)
		case answered.Before(s.to.Add(-rounding)):
			return fmt.Errorf("GUARD: %s; want renewed, since the lease had %v left", show(o), s.to.Sub(answered))
		default:
			return nil
		}
	}
	if rand.IntN(6) == 0 {
		return nil // the contender stops without a release, and the lease expires
	}
	pause(time.Duration(rand.IntN(5)) * ms)
	s.to = earlier(s.to, time.Now())
	r := simba.ReleaseRequest{Mutex: s.mutex, Contender: h.name}
	if h.failing || rand.IntN(2) == 0 {
		r.Token = s.token // a delayed request must not end a later tenure
	}
	_, seq, err := h.s.b.Release(ctx, r)
	if err != nil {
		return h.excuse(err, time.Now(), long)
	}
	return h.s.b.Commit(seq)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// shortenOwned notes that the contender asks for a mutex again. If the contender still owns the
// mutex by an abandoned tenure, the request may renew that tenure with an earlier end.
func (h *contender) shortenOwned(m string, end time.Time) {
	for i := range h.owned {
		if s := &h.owned[i]; s.mutex == m {
			s.to = earlier(s.to, end)
		}
	}
}

// excuse returns nil for an UnavailableError while the network fails. It also does so if the answer
// took longer than the lease, since then there is no lease to report. It returns any other error.
func (h *contender) excuse(err error, asked time.Time, lease time.Duration) error {
	late := time.Since(asked) >= lease-rounding
	if unavailable := (*simba.UnavailableError)(nil); (h.failing || late) && errors.As(err, &unavailable) {
		return nil
	}
	return err
}
