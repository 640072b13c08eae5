package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// server is one Backend with its broker, and helpers for the requests of clients. An error fails
// the test. Every helper calls Commit, as a connection does before it replies.
type server struct {
	tc     *testCase
	b      Backend
	broker *Broker
	waits  []*waiter
}

func (tc *testCase) open(open Opener, timeout time.Duration) *server {
	tc.t.Helper()
	s := &server{tc: tc, broker: NewBroker()}
	s.b = open(tc.t, s.broker, timeout)
	s.b.SetHandoffWindow(testWindow)
	s.b.SetQueueGrace(testGrace)
	tc.servers = append(tc.servers, s)
	return s
}

func (s *server) end() {
	for _, x := range s.waits {
		if !x.ended && s.b != nil {
			_, _ = x.ticket.End(simba.EndLeft)
		}
	}
	s.close()
}

// close closes the server without ending the waits, as a crash does.
func (s *server) close() {
	s.tc.t.Helper()
	if err := s.b.Close(); err != nil {
		s.tc.t.Errorf("Close: %v; want no error", err)
	}
	for _, x := range s.waits {
		x.ended = true
	}
}

func (s *server) commit(seq simba.Seq, err error) {
	s.tc.t.Helper()
	if err == nil {
		err = s.b.Commit(seq)
	}
	if err != nil {
		s.tc.t.Fatal(err)
	}
}

// serve makes a request that must succeed, and commits it. In rules of outages the server's timeout
// is short, so a busy store may answer too late even without a fault. Then serve repeats the
// request.
func (s *server) serve(request func() (simba.Seq, error)) (repeated bool) {
	s.tc.t.Helper()
	for end := time.Now().Add(s.tc.patience()); ; repeated = true {
		asked := time.Now()
		seq, err := request()
		unavailable := (*simba.UnavailableError)(nil)
		missed := errors.As(err, &unavailable) && time.Since(asked) >= s.tc.engine.Timeout-rounding
		if !missed || s.tc.engine.Link == nil || !s.tc.engine.Link.Whole() || time.Now().After(end) {
			s.commit(seq, err)
			return repeated
		}
	}
}

func (s *server) acquireAs(r simba.AcquireRequest) simba.Outcome {
	s.tc.t.Helper()
	o, _ := s.acquireRepeated(r)
	return o
}

// acquireRepeated is acquireAs, but also reports whether serve repeated the request.
func (s *server) acquireRepeated(r simba.AcquireRequest) (o simba.Outcome, repeated bool) {
	s.tc.t.Helper()
	repeated = s.serve(func() (_ simba.Seq, err error) {
		o, _, err = s.b.Acquire(context.Background(), r)
		return o.Seq, err
	})
	return o, repeated
}

func (s *server) acquire(mutex, contender string, ttl, transition time.Duration) simba.Outcome {
	s.tc.t.Helper()
	return s.acquireAs(simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition})
}

// mustAcquire is acquire for a mutex that must be free.
func (s *server) mustAcquire(mutex, contender string, ttl, transition time.Duration) simba.Outcome {
	s.tc.t.Helper()
	o, repeated := s.acquireRepeated(simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition})
	acquired := o.Status == simba.StatusAcquired || repeated && o.Status == simba.StatusRenewed
	if !acquired || o.Owner != contender || o.Token == 0 {
		s.tc.t.Fatalf("ACQUIRE: %s should acquire %s, got %s", contender, mutex, show(o))
	}
	return o
}

func (s *server) acquireNoQueue(mutex, contender string, ttl, transition time.Duration) simba.Outcome {
	s.tc.t.Helper()
	return s.acquireAs(simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition, NoQueue: true})
}

// mustQueue is acquire by a polling waiter for a mutex that is not free.
func (s *server) mustQueue(mutex, contender string, ttl time.Duration) simba.Outcome {
	s.tc.t.Helper()
	o := s.acquire(mutex, contender, ttl, 0)
	if o.Status != simba.StatusQueued || o.Position == 0 {
		s.tc.t.Fatalf("ACQUIRE: %s should be queued for %s, got %s", contender, mutex, show(o))
	}
	return o
}

// poll makes the contender a polling waiter with a subscription to its channel.
func (s *server) poll(mutex, contender string, ttl time.Duration) {
	s.tc.t.Helper()
	s.subscribeContender(mutex, contender)
	s.mustQueue(mutex, contender, ttl)
}

func (s *server) guard(mutex, contender string, ttl, transition time.Duration, token uint64) simba.Outcome {
	s.tc.t.Helper()
	var o simba.Outcome
	s.serve(func() (_ simba.Seq, err error) {
		o, err = s.b.Guard(context.Background(), simba.GuardRequest{
			Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition, Token: token,
		})
		return o.Seq, err
	})
	return o
}

func (s *server) releaseAs(r simba.ReleaseRequest) bool {
	s.tc.t.Helper()
	owned, _ := s.releaseRepeated(r)
	return owned
}

func (s *server) releaseRepeated(r simba.ReleaseRequest) (owned, repeated bool) {
	s.tc.t.Helper()
	repeated = s.serve(func() (seq simba.Seq, err error) {
		owned, seq, err = s.b.Release(context.Background(), r)
		return seq, err
	})
	return owned, repeated
}

func (s *server) release(mutex, contender string) bool {
	s.tc.t.Helper()
	return s.releaseAs(simba.ReleaseRequest{Mutex: mutex, Contender: contender})
}

// untilServed repeats a request until it returns no UnavailableError.
func (s *server) untilServed(what string, ask func(ctx context.Context) (simba.Seq, error)) {
	s.tc.t.Helper()
	var seq simba.Seq
	var err error
	s.tc.await(what+" is served", func() bool {
		seq, err = ask(context.Background())
		unavailable := (*simba.UnavailableError)(nil)
		return !errors.As(err, &unavailable)
	})
	s.commit(seq, err)
}

func (s *server) acquireAgain(mutex, contender string, ttl time.Duration) (o simba.Outcome) {
	s.tc.t.Helper()
	s.untilServed("acquire", func(ctx context.Context) (_ simba.Seq, err error) {
		o, _, err = s.b.Acquire(ctx, simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl})
		return o.Seq, err
	})
	return o
}

func (s *server) ownerAgain(mutex string) (o simba.Tenure) {
	s.tc.t.Helper()
	s.untilServed("owner", func(ctx context.Context) (seq simba.Seq, err error) {
		o, seq, err = s.b.Owner(ctx, mutex)
		return seq, err
	})
	return o
}

func (s *server) releaseAgain(mutex, contender string) (owned bool) {
	s.tc.t.Helper()
	s.untilServed("release", func(ctx context.Context) (seq simba.Seq, err error) {
		owned, seq, err = s.b.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: contender})
		return seq, err
	})
	return owned
}

func (s *server) guardAgain(mutex, contender string, token uint64) (o simba.Outcome) {
	s.tc.t.Helper()
	s.untilServed("guard", func(ctx context.Context) (_ simba.Seq, err error) {
		o, err = s.b.Guard(ctx, simba.GuardRequest{Mutex: mutex, Contender: contender, TTL: long, Token: token})
		return o.Seq, err
	})
	return o
}

func (s *server) mustRelease(mutex, contender string) {
	s.tc.t.Helper()
	if owned, repeated := s.releaseRepeated(simba.ReleaseRequest{Mutex: mutex, Contender: contender}); !owned && !repeated {
		s.tc.t.Fatalf("RELEASE returned 0: %s should be the owner of %s", contender, mutex)
	}
}

func (s *server) breakTenure(mutex, reason string) bool {
	s.tc.t.Helper()
	freed, seq, err := s.b.Break(context.Background(), mutex, reason)
	s.commit(seq, err)
	return freed
}

func (s *server) owner(mutex string) simba.Tenure {
	s.tc.t.Helper()
	var o simba.Tenure
	s.serve(func() (seq simba.Seq, err error) {
		o, seq, err = s.b.Owner(context.Background(), mutex)
		return seq, err
	})
	return o
}

func (s *server) check(mutex string, token uint64) bool {
	s.tc.t.Helper()
	ok, seq, err := s.b.Check(context.Background(), mutex, token)
	s.commit(seq, err)
	return ok
}

func (s *server) queueEntries(mutex string, count int) []simba.QueueEntry {
	s.tc.t.Helper()
	var list []simba.QueueEntry
	s.serve(func() (seq simba.Seq, err error) {
		list, seq, err = s.b.Queue(context.Background(), mutex, count)
		return seq, err
	})
	for i, q := range list {
		if q.Position != i+1 {
			s.tc.t.Errorf("QUEUE: %s has position %d, but is entry %d of the list", q.Contender, q.Position, i+1)
		}
	}
	return list
}

func (s *server) queue(mutex string) (names []string) {
	s.tc.t.Helper()
	for _, q := range s.queueEntries(mutex, simba.MaxCount) {
		names = append(names, q.Contender)
	}
	return names
}

func (s *server) history(r simba.HistoryRequest) []simba.Event {
	s.tc.t.Helper()
	events, seq, err := s.b.History(context.Background(), r)
	s.commit(seq, err)
	return events
}

// eventsOf returns the history of a mutex in short form: "acquired a".
func (s *server) eventsOf(mutex string) (lines []string) {
	s.tc.t.Helper()
	for _, e := range s.history(simba.HistoryRequest{Mutex: mutex, Count: simba.MaxCount}) {
		lines = append(lines, e.Kind.String()+" "+e.Owner)
	}
	return lines
}

// subscribe subscribes one more client to a channel.
func (s *server) subscribe(channel string) {
	s.tc.t.Helper()
	s.broker.subscribe(channel)
	s.serve(func() (simba.Seq, error) { return s.b.Subscribed(context.Background(), channel, false) })
}

func (s *server) psubscribe(pattern string) {
	s.tc.t.Helper()
	s.broker.psubscribe(pattern)
	s.commit(s.b.Subscribed(context.Background(), pattern, true))
}

func (s *server) subscribeContender(mutex, contender string) {
	s.tc.t.Helper()
	s.subscribe(simba.ContenderChannel(mutex, contender))
}

// awaitNotices waits until the payloads on a channel are exactly those in want. It fails the test
// if a payload differs, or if there are more.
func (s *server) awaitNotices(channel string, want ...string) {
	s.tc.t.Helper()
	s.tc.await(fmt.Sprintf("the notices on %s are %q", channel, want), func() bool {
		got := s.broker.publishedOn(channel)
		if !slices.Equal(got, want[:min(len(got), len(want))]) {
			s.tc.t.Fatalf("notices on %s: %q, want %q", channel, got, want)
		}
		return len(got) == len(want)
	})
}

// awaitOnly waits until the payload is on a channel at least once. It fails the test on any other
// payload. A server may notify a contender twice, if it reads the mutex while the contender
// subscribes.
func (s *server) awaitOnly(channel, want string) {
	s.tc.t.Helper()
	s.tc.await(fmt.Sprintf("a notice on %s is %q", channel, want), func() bool {
		got := s.broker.publishedOn(channel)
		if slices.ContainsFunc(got, func(payload string) bool { return payload != want }) {
			s.tc.t.Fatalf("notices on %s: %q, want only %q", channel, got, want)
		}
		return len(got) > 0
	})
}

// waiter is a client that is blocked in ACQUIRE … WAIT.
type waiter struct {
	s      *server
	mutex  string
	name   string
	ticket simba.Ticket
	ended  bool
	asked  time.Time
	lease  time.Duration // both windows together

	mu    sync.Mutex // guards the fields below
	woke  bool
	woken chan struct{}
}

// Wake implements simba.Waiter.
func (x *waiter) Wake() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.woke {
		x.woke = true
		close(x.woken)
	}
}

func (x *waiter) rearm() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.woke {
		x.woke, x.woken = false, make(chan struct{})
	}
}

// block is ACQUIRE … WAIT for a mutex that is not free.
func (s *server) block(mutex, contender string, ttl, transition time.Duration) *waiter {
	s.tc.t.Helper()
	x, o := s.acquireWait(simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition})
	if x == nil {
		s.tc.t.Fatalf("ACQUIRE … WAIT: %s should wait for %s, got %s", contender, mutex, show(o))
	}
	return x
}

// acquireWait is ACQUIRE … WAIT. The waiter is nil if the contender does not wait.
func (s *server) acquireWait(r simba.AcquireRequest) (*waiter, simba.Outcome) {
	s.tc.t.Helper()
	x := &waiter{
		s: s, mutex: r.Mutex, name: r.Contender, woken: make(chan struct{}),
		asked: time.Now(), lease: r.TTL + r.Transition,
	}
	r.Waiter = x
	var o simba.Outcome
	var ticket simba.Ticket
	s.serve(func() (_ simba.Seq, err error) {
		o, ticket, err = s.b.Acquire(context.Background(), r)
		return o.Seq, err
	})
	if (ticket != nil) != (o.Status == simba.StatusWaiting) {
		s.tc.t.Fatalf("ACQUIRE … WAIT returned status %v with ticket %v; want a ticket only with waiting",
			o.Status, ticket)
	}
	if ticket == nil {
		return nil, o
	}
	x.ticket = ticket
	s.waits = append(s.waits, x)
	return x, o
}

func (x *waiter) end(why simba.EndReason) simba.Outcome {
	x.s.tc.t.Helper()
	x.rearm()
	o, err := x.ticket.End(why)
	x.ended = o.Status != simba.StatusWaiting
	x.s.commit(o.Seq, err)
	return o
}

func (x *waiter) isWoken() bool {
	select {
	case <-x.woken:
		return true
	default:
		return false
	}
}

func (x *waiter) awaitWake() {
	x.s.tc.t.Helper()
	select {
	case <-x.woken:
	case <-time.After(x.s.tc.patience()):
		x.s.tc.t.Fatalf("%s was not woken within %v", x.name, x.s.tc.patience())
	}
}

// granted waits until the waiter owns the mutex. A waiter that receives a short lease too late
// keeps waiting.
func (x *waiter) granted() simba.Outcome {
	x.s.tc.t.Helper()
	x.awaitWake()
	o := x.end(simba.EndWoken)
	for o.Status == simba.StatusWaiting && time.Since(x.asked) >= x.lease {
		x.awaitWake()
		o = x.end(simba.EndWoken)
	}
	if o.Status != simba.StatusAcquired || o.Owner != x.name || o.Token == 0 {
		x.s.tc.t.Fatalf("%s, end of the wait: %s; want acquired", x.name, show(o))
	}
	return o
}

func (x *waiter) abandon() {
	x.s.tc.t.Helper()
	x.s.commit(x.ticket.Abandon())
}
