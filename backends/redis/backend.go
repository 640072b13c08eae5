package redis

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/credentials"
	"github.com/simba-resp/simba-resp/history"
)

// Backend keeps mutexes in Redis. It is a simba.Backend, safe for concurrent use.
type Backend struct {
	*proxy.Core

	id      string // names this server among those that share the Redis
	timeout time.Duration

	fenceTTL      time.Duration // see Options.URL
	plainChannels bool          // Options.PlainChannels

	source   *credentials.Source[target]
	up       *upstream
	schedule *schedule
	subs     *subscriptions

	faultsByNode map[string][]proxy.Fault // what check has found at each master; used by check only

	slotWarned atomic.Int64 // when the log last warned of a moving slot, in Unix nanoseconds

	mu               sync.Mutex // guards the fields below
	lastTicket       uint64
	reconciling      map[string]bool              // running reconciliations; true = run again
	contenderNotices map[string][]contenderNotice // by mutex, for its next reconciliation
	tickets          map[string]bool              // by ticket, see forget
	chores           map[string][]chore           // by mutex
}

// Open connects to Redis and checks that Redis can keep locks. If Redis cannot, the error says why
// in one line. Open logs a warning for each setting that only weakens a promise.
func Open(ctx context.Context, o Options) (*Backend, error) {
	o.SetDefaults("redis")
	source, err := credentials.Open(credentials.Config[target]{
		Text: o.URL, Reread: o.Reread, Parse: parseURL, Failed: func(err error) {
			o.Logger.Error("cannot read the login or the TLS files of redis again; keeping the last ones", "err", err)
		},
	})
	if err != nil {
		return nil, err
	}
	t := source.Last()
	b := &Backend{
		id:               rand.Text(),
		timeout:          o.Timeout,
		fenceTTL:         t.fenceTTL,
		plainChannels:    o.PlainChannels,
		source:           source,
		reconciling:      make(map[string]bool),
		contenderNotices: make(map[string][]contenderNotice),
		tickets:          make(map[string]bool),
		chores:           make(map[string][]chore),
	}
	b.schedule = &schedule{reconcile: b.reconcileSoon, byMutex: make(map[string]*dueTime)}
	events := history.NewLog(o.Notices, o.History, false)
	events.Window = reorderWindow
	b.Core = proxy.NewCore(o.Options, events, func(ctx context.Context) ([]proxy.Fault, error) { return b.check(ctx, t) }, waitEnder{b})
	b.up = newUpstream(b.source, o.Timeout, b.Core)
	b.subs = newSubscriptions(b)
	// go-redis respects a context's deadline, but not its cancellation. Closing the connections
	// ends its requests.
	stop := context.AfterFunc(ctx, func() { _ = b.up.close() })
	err = b.start(ctx, t)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Backend) start(ctx context.Context, t target) error {
	if err := b.Checks.Start(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := b.subs.start(ctx); err != nil {
		return explain(err, strings.Join(t.addrs, ","))
	}
	b.Checks.Repaired = b.subs.catchUp
	b.Go(func() { b.Checks.Run(b.Stopping, b.Waiters) })
	b.Go(b.subs.maintain)
	return nil
}

// Close ends all goroutines and connections. Blocked waiters keep their queue entries until other
// servers detect that this server is dead. Close may be called more than once.
func (b *Backend) Close() error {
	if b.Stop() {
		b.schedule.stop()
		_ = b.up.close() // requests in flight fail
	}
	b.Wait()
	return nil
}

// CertificatesExpire returns when the certificates of the connections expire, by setting.
func (b *Backend) CertificatesExpire() map[string]time.Time {
	return b.source.Get().expires
}

// reorderWindow is how long the event log waits for the events of a reply that another reply has
// overtaken.
const reorderWindow = 100 * time.Millisecond

// maxBackground is how many background tasks run at one node at a time.
const maxBackground = 64

// background runs f in a goroutine, as a task at the node of a mutex. A node that does not answer
// delays only its own tasks.
func (b *Backend) background(mutex string, f func(ctx context.Context)) {
	b.Go(func() {
		limit := b.up.backgroundLimitFor(simba.MutexChannel(mutex))
		select {
		case limit <- struct{}{}:
		case <-b.Stopping.Done():
			return
		}
		defer func() { <-limit }()
		f(b.Stopping)
	})
}

// Acquire implements simba.Backend.
func (b *Backend) Acquire(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	if r.Waiter != nil {
		return b.acquireWaiting(ctx, r)
	}
	mode := "queue"
	if r.NoQueue {
		mode = "noqueue"
	}
	earlier := b.Waiters.Find(r.Mutex, r.Contender)
	s, err := b.acquire(ctx, r, mode, "")
	if err != nil {
		return simba.Outcome{}, nil, err
	}
	out := s.result()
	if out.Status == simba.StatusAcquired || out.Status == simba.StatusRenewed {
		// An earlier request of the contender may still wait. This reply ends that wait. If a wait
		// began while this request ran, a reconciliation ends it.
		ended := earlier != nil && earlier.Grant(proxy.Grant{Token: s.token, Since: s.sent, Confirm: true})
		if !ended && b.Waiters.Find(r.Mutex, r.Contender) != nil {
			b.schedule.bringForward(time.Now(), r.Mutex)
		}
	}
	return out, nil, nil
}

// Guard implements simba.Backend.
func (b *Backend) Guard(ctx context.Context, r simba.GuardRequest) (simba.Outcome, error) {
	s, err := b.ask(ctx, r.Mutex, guardScript, r.Contender, r.TTL.Milliseconds(), r.Transition.Milliseconds(),
		tokenText(r.Token))
	if err != nil {
		return simba.Outcome{}, err
	}
	if s.status == "renewed" {
		return s.outcome(simba.StatusRenewed), nil
	}
	return s.outcome(simba.StatusLost), nil
}

// Release implements simba.Backend.
func (b *Backend) Release(ctx context.Context, r simba.ReleaseRequest) (bool, simba.Seq, error) {
	var t *proxy.Ticket // the ticket of the contender's wait, which this request ends; nil = none
	if r.Token == 0 && r.Session == 0 {
		t = b.Waiters.Find(r.Mutex, r.Contender)
	}
	if t != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.timeout)
		defer cancel()
		b.stopRestoring(t)
	}
	s, err := b.ask(ctx, r.Mutex, releaseScript, r.Contender, tokenText(r.Token),
		proxy.Binding(b.id, r.Session), r.Reason)
	switch {
	case err != nil:
		if t != nil {
			b.mu.Lock()
			waitOf(t).restoreStopped = false
			b.mu.Unlock()
		}
		return false, 0, err
	case t != nil:
		b.endWait(r.Mutex, r.Contender, waitOf(t).ticket, proxy.Grant{Confirm: true})
	}
	return s.status == "released", 0, nil
}

// Break implements simba.Backend.
func (b *Backend) Break(ctx context.Context, mutex, reason string) (bool, simba.Seq, error) {
	s, err := b.ask(ctx, mutex, breakScript, reason)
	return err == nil && s.status == "released", 0, err
}

// Owner implements simba.Backend.
func (b *Backend) Owner(ctx context.Context, mutex string) (simba.Tenure, simba.Seq, error) {
	s, err := b.reconcileAndRead(ctx, mutex)
	if err != nil {
		return simba.Tenure{}, 0, err
	}
	t := s.tenure()
	if _, session := s.readExtra(); !t.IsFree() {
		t.Session = proxy.BoundSession(b.id, session)
	}
	return t, 0, nil
}

// Check implements simba.Backend.
func (b *Backend) Check(ctx context.Context, mutex string, token uint64) (bool, simba.Seq, error) {
	s, err := b.reconcileAndRead(ctx, mutex)
	return err == nil && s.owner != "" && s.token == token && time.Since(s.sent) < proxy.Between(s.now, s.ends), 0, err
}

// Queue implements simba.Backend.
func (b *Backend) Queue(ctx context.Context, mutex string, count int) ([]simba.QueueEntry, simba.Seq, error) {
	s, err := b.ask(ctx, mutex, queueScript, count)
	if err != nil {
		return nil, 0, err
	}
	list, _ := s.extra.([]any)
	var entries []simba.QueueEntry
	for i := 0; i+2 < len(list); i += 3 {
		contender, _ := list[i].(string)
		kind, _ := list[i+1].(string)
		since, _ := list[i+2].(int64)
		entries = append(entries, simba.QueueEntry{
			Contender: contender, Position: i/3 + 1,
			Waiting: proxy.Between(since, s.now), Blocked: kind == "b",
		})
	}
	return entries, 0, nil
}
