package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// recorder is a Notices that records the published messages. The test sets its subscribers.
type recorder struct {
	mu        sync.Mutex
	listening map[string]bool
	deaf      map[string]bool // channels that unsubscribe at the next notice
	late      map[string]bool // channels whose first notice reaches no subscriber
	heard     []string        // "channel payload"
}

func (r *recorder) subscribe(channel string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listening == nil {
		r.listening = map[string]bool{}
	}
	r.listening[channel] = true
}

func (r *recorder) unsubscribe(channel string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.listening, channel)
}

// forget drops all published messages and all subscriptions.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard, r.listening = nil, nil
}

func (r *recorder) Publish(channel, payload string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deaf[channel] {
		delete(r.deaf, channel)
		delete(r.listening, channel)
	}
	r.heard = append(r.heard, channel+" "+payload)
	if r.late[channel] {
		delete(r.late, channel)
		return 0
	}
	if r.listening[channel] {
		return 1
	}
	return 0
}

func (r *recorder) Subscribed(channel string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listening[channel]
}

func (r *recorder) SubscribedPattern(string) bool { return false }

func (r *recorder) Any() bool { return true }

// published returns the payloads that were published on a channel.
func (r *recorder) published(channel string) (payloads []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.heard {
		if p, ok := cutChannel(h, channel); ok {
			payloads = append(payloads, p)
		}
	}
	return payloads
}

func cutChannel(heard, channel string) (string, bool) {
	if len(heard) > len(channel) && heard[:len(channel)+1] == channel+" " {
		return heard[len(channel)+1:], true
	}
	return "", false
}

// world is an engine in fake time, with short method names for the tests. Every call commits, as a
// connection does before it replies.
type world struct {
	t        *testing.T
	e        *Engine
	recorder *recorder
}

const (
	testWindow = time.Second
	testGrace  = 5 * time.Second
)

func newWorld(t *testing.T, rec Recovery) *world { return newWorldOn(t, Memory(), rec) }

func newWorldOn(t *testing.T, j Journal, rec Recovery) *world {
	t.Helper()
	w := &world{t: t, recorder: &recorder{}}
	e, err := New(Config{
		Clock: NewClock(1000), HandoffWindow: testWindow, QueueGrace: testGrace, Notices: w.recorder,
	}, j, rec)
	if err != nil {
		t.Fatal(err)
	}
	w.e = e
	t.Cleanup(e.Stop)
	return w
}

// inBubble runs a test in fake time, and then checks the invariants.
func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		test(w)
		synctest.Wait() // until the timers of this instant have run
		w.audit()
	})
}

// inBubbleOnDisk is inBubble with a journal whose fsync waits while the test closes the gate.
func inBubbleOnDisk(t *testing.T, test func(w *world, g *gate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.set(true)
		w := newWorldOn(t, g, Recovery{})
		test(w, g)
		synctest.Wait() // until the timers of this instant have run
		w.audit()
	})
}

func (w *world) mustCommit(seq simba.Seq, err error) {
	w.t.Helper()
	if err == nil {
		err = w.e.Commit(seq)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ask(r simba.AcquireRequest) simba.Outcome {
	w.t.Helper()
	o, _, err := w.e.Acquire(context.Background(), r)
	w.mustCommit(o.Seq, err)
	return o
}

func (w *world) acquire(mutex, contender string, ttl, transition time.Duration) simba.Outcome {
	w.t.Helper()
	return w.ask(simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition})
}

func (w *world) guard(mutex, contender string, ttl, transition time.Duration, token uint64) simba.Outcome {
	w.t.Helper()
	o, err := w.e.Guard(context.Background(), simba.GuardRequest{
		Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition, Token: token,
	})
	w.mustCommit(o.Seq, err)
	return o
}

func (w *world) release(mutex, contender string) bool {
	w.t.Helper()
	return w.askRelease(simba.ReleaseRequest{Mutex: mutex, Contender: contender})
}

func (w *world) askRelease(r simba.ReleaseRequest) bool {
	w.t.Helper()
	ok, seq, err := w.e.Release(context.Background(), r)
	w.mustCommit(seq, err)
	return ok
}

func (w *world) owner(mutex string) simba.Tenure {
	w.t.Helper()
	o, seq, err := w.e.Owner(context.Background(), mutex)
	w.mustCommit(seq, err)
	return o
}

func (w *world) queue(mutex string) (names []string) {
	w.t.Helper()
	list, seq, err := w.e.Queue(context.Background(), mutex, simba.MaxCount)
	w.mustCommit(seq, err)
	for i, q := range list {
		if q.Position != i+1 {
			w.t.Errorf("a queue entry has position %d, want %d", q.Position, i+1)
		}
		names = append(names, q.Contender)
	}
	return names
}

func (w *world) history(mutex string) (lines []string) {
	w.t.Helper()
	events, seq, err := w.e.History(context.Background(), simba.HistoryRequest{Mutex: mutex, Count: 1000})
	w.mustCommit(seq, err)
	for _, e := range events {
		lines = append(lines, e.Kind.String()+" "+e.Owner)
	}
	return lines
}

// listen subscribes a polling waiter to its own channel.
func (w *world) listen(mutex, contender string) {
	w.t.Helper()
	w.recorder.subscribe(simba.ContenderChannel(mutex, contender))
	w.mustCommit(w.e.Subscribed(context.Background(), simba.ContenderChannel(mutex, contender), false))
}

// poll makes the contender a reachable polling waiter.
func (w *world) poll(mutex, contender string, ttl time.Duration) {
	w.t.Helper()
	w.listen(mutex, contender)
	w.acquire(mutex, contender, ttl, 0)
}

func (w *world) offers(mutex, contender string) []string {
	return w.recorder.published(simba.ContenderChannel(mutex, contender))
}

// blocked is a waiter on an open connection.
type blocked struct {
	w      *world
	ticket simba.Ticket

	mu    sync.Mutex // guards rung and woken
	rung  bool
	woken chan struct{}
}

func (b *blocked) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.rung {
		b.rung = true
		close(b.woken)
	}
}

// await prepares for another Wake.
func (b *blocked) await() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung {
		b.rung, b.woken = false, make(chan struct{})
	}
}

func (w *world) block(mutex, contender string, ttl, transition time.Duration) *blocked {
	w.t.Helper()
	b := &blocked{w: w, woken: make(chan struct{})}
	o, ticket, err := w.e.Acquire(context.Background(), simba.AcquireRequest{
		Mutex: mutex, Contender: contender, TTL: ttl, Transition: transition, Waiter: b,
	})
	w.mustCommit(o.Seq, err)
	if ticket == nil {
		w.t.Fatalf("%s does not wait: %+v", contender, o)
	}
	b.ticket = ticket
	return b
}

func (b *blocked) end(why simba.EndReason) simba.Outcome {
	b.w.t.Helper()
	b.await()
	o, err := b.ticket.End(why)
	b.w.mustCommit(o.Seq, err)
	return o
}

func (b *blocked) isWoken() bool {
	select {
	case <-b.woken:
		return true
	default:
		return false
	}
}

// granted returns the outcome of a waiter, which must have been woken.
func (b *blocked) granted() simba.Outcome {
	b.w.t.Helper()
	synctest.Wait()
	if !b.isWoken() {
		b.w.t.Fatal("the waiter was not woken")
	}
	o := b.end(simba.EndWoken)
	if o.Status != simba.StatusAcquired {
		b.w.t.Fatalf("the waiter was woken with status %v, want acquired", o.Status)
	}
	return o
}

// audit checks the invariants of the package comment on every mutex, and compares the counters with
// a recount.
func (w *world) audit() {
	w.t.Helper()
	var total simba.Stats
	var bytes int64
	for i := range w.e.shards {
		sh := &w.e.shards[i]
		sh.mu.Lock()
		now := w.e.clock.Now()
		found := 0
		for _, m := range sh.table.buckets {
			for ; m != nil; m = m.next {
				found++
				w.auditMutex(sh, m, now)
				bytes += walked(m)
				c := statsOf(m, true)
				total.Blocked += c.blocked
				total.Polling += c.polling
				if c.owned {
					total.Held++
				}
			}
		}
		if sh.step.hasEffects() || len(sh.watched) == 0 && sh.watched != nil {
			w.t.Error("the shard keeps effects of a step, or an empty map of watched mutexes")
		}
		if found != sh.table.len {
			w.t.Errorf("the table has %d mutexes, but its len is %d", found, sh.table.len)
		}
		if len(sh.due) > found {
			w.t.Errorf("the heap has %d deadlines for %d mutexes", len(sh.due), found)
		}
		sh.mu.Unlock()
	}
	s := w.e.Stats()
	if s.Held != total.Held || s.Blocked != total.Blocked || s.Polling != total.Polling {
		w.t.Errorf("Stats returned %+v, a recount gives %+v", s, total)
	}
	if counted := w.e.Bytes(); counted != bytes {
		w.t.Errorf("Bytes returned %d, a recount gives %d", counted, bytes)
	}
}

func (w *world) auditMutex(sh *shard, m *mutex, now simba.Instant) {
	w.t.Helper()
	if m.idle() {
		w.t.Errorf("%s has no state and is still in memory", m.name())
	}
	if d := m.deadline(w.e.recoverUntil, w.e.former); d != never && (m.slot < 0 || sh.due[m.slot].m != m || sh.due[m.slot].at > d) {
		w.t.Errorf("%s: the heap does not have its deadline, or has a later one", m.name())
	}
	x := m.extra
	if x == nil {
		return
	}
	held := max(w.e.recoverUntil, x.open) // until then, no waiter gets the mutex
	if now >= w.e.recoverUntil {
		if m.owned() && x.find(m.owner()) != nil {
			w.t.Errorf("%s: its owner %s is in the queue", m.name(), m.owner())
		}
		if !m.owned() && x.reserved == nil && now >= held && x.next() != nil {
			w.t.Errorf("%s is free and %s was not notified: lost wake-up", m.name(), x.next().contender)
		}
	}
	if !slices.IsSortedFunc(x.all, func(a, b *entry) int { return a.order.compare(b.order) }) {
		w.t.Errorf("%s: the queue is out of order", m.name())
	}
	names := map[string]bool{}
	var blocked int64
	length := 0
	for _, e := range x.all {
		names[e.contender] = true
		length += len(e.contender)
		if e.ticket != nil {
			blocked++
			if !e.ready && e.ticket.after == 0 || e.ticket.entry != e {
				w.t.Errorf("%s: blocked waiter %s is unreachable", m.name(), e.contender)
			}
		} else if x.nextLapse == 0 || x.nextLapse > e.lapse {
			w.t.Errorf("%s: polling waiter %s never lapses", m.name(), e.contender)
		}
		if free := !m.owned() && x.reserved == nil && now >= held; free && e.ticket == nil && !x.wasOffered(e) &&
			w.recorder.Subscribed(simba.ContenderChannel(m.name(), e.contender)) {
			w.t.Errorf("%s is free, %s subscribes and was not notified: lost wake-up", m.name(), e.contender)
		}
		if e.ready != slices.Contains(x.ready, e) {
			w.t.Errorf("%s: the ready flag of %s does not match the list of ready waiters", m.name(), e.contender)
		}
	}
	if len(names) != len(x.all) {
		w.t.Errorf("%s: a contender has two queue entries: %v", m.name(), slices.Sorted(maps.Keys(names)))
	}
	if blocked != x.blocked {
		w.t.Errorf("%s: %d waiters are blocked, but the queue counts %d", m.name(), blocked, x.blocked)
	}
	if length != x.names {
		w.t.Errorf("%s: the waiters' names have %d bytes, but the queue counts %d", m.name(), length, x.names)
	}
}
