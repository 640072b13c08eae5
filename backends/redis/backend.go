package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Backend keeps mutexes in Redis. It is a simba.Backend, safe for concurrent use.
type Backend struct {
	proxy.QueueSettings

	id      string // of this server among those on the same Redis
	timeout time.Duration
	log     *slog.Logger
	notices simba.Notices

	fenceTTL time.Duration // see Options.URL

	up       *upstream
	tasks    *tasks
	eventLog *proxy.EventLog
	waiters  *proxy.Waiters
	schedule *schedule
	subs     *subscriptions
	counts   counts

	mu           sync.Mutex          // guards what follows
	tickets      uint64              // of the last place
	reconciling  map[string]bool     // mutexes that are looked after, or will be when there is room; true = and again then
	wakeups      map[string][]wakeup // by mutex, for the next look
	delivered    recentSet[delivery]
	lateGrants   map[string]grant    // tickets whose End has yet to return, and the newest grant that came meanwhile
	acknowledged recentSet[string]   // tickets whose End said acquired
	orphans      map[string][]orphan // by mutex
}

// Open connects to Redis and checks that it can keep locks. Whatever would break them
// is an error of one line; what only weakens a promise is logged as a warning.
func Open(ctx context.Context, o Options) (*Backend, error) {
	t, err := parseURL(o.URL)
	switch {
	case err != nil:
		return nil, err
	case o.Notices == nil:
		return nil, errors.New("cannot open the redis engine without Notices")
	case o.Timeout < 0:
		return nil, errors.New("cannot open the redis engine: Timeout is negative")
	case o.Timeout == 0:
		o.Timeout = DefaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		id:          newID(),
		timeout:     o.Timeout,
		log:         o.Logger,
		notices:     o.Notices,
		fenceTTL:    t.fenceTTL,
		tasks:       newTasks(),
		eventLog:    proxy.NewEventLog(o.Notices, 0),
		schedule:    newSchedule(),
		orphans:     make(map[string][]orphan),
		reconciling: make(map[string]bool),
		wakeups:     make(map[string][]wakeup),
		lateGrants:  make(map[string]grant),
	}
	b.eventLog.ReorderWindow = replyReorderWindow
	b.SetHandoffWindow(o.HandoffWindow)
	b.SetQueueGrace(o.QueueGrace)
	b.waiters = proxy.NewWaiters(store{b})
	b.up = newUpstream(t, o.Timeout, b.tasks)
	b.subs = newSubscriptions(b)
	// go-redis heeds a context's deadline while it waits, but not its end.
	stop := context.AfterFunc(ctx, func() { _ = b.up.close() })
	err = b.begin(ctx, t)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Backend) begin(ctx context.Context, t target) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	var warnings []func() // told only if all is well enough to start
	warn := func(message string, args ...any) {
		warnings = append(warnings, func() { b.log.Warn(message, args...) })
	}
	if err := b.check(ctx, t, warn); err != nil {
		return err
	}
	if err := b.subs.begin(ctx); err != nil {
		return explain(err, strings.Join(t.addrs, ","))
	}
	for _, w := range warnings {
		w()
	}
	b.tasks.start(func() { b.schedule.run(b.tasks.ctx, b.reconcileSoon) })
	b.tasks.start(b.sweep)
	return nil
}

// Close ends all goroutines and connections. Waiters that are still blocked are left
// as they are, as by a crash: other servers find them dead. It may be called again.
func (b *Backend) Close() error {
	if !b.tasks.stop() {
		b.tasks.wg.Wait()
		return nil
	}
	b.subs.close()
	_ = b.up.close() // what was in use fails; there is nothing to be done about it
	b.tasks.wg.Wait()
	return nil
}

func newID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// maxBackground is how much is done at a time at one node that no client waits for.
const maxBackground = 64

// background runs f, which concerns a mutex, without anyone waiting for it. If there is much to do
// at the mutex' node, f runs after that. A node that does not answer holds up no other's mutexes.
func (b *Backend) background(mutex string, f func(ctx context.Context)) {
	b.tasks.start(func() {
		slots := b.up.slotsOf(simba.MutexChannel(mutex))
		select {
		case slots <- struct{}{}:
		case <-b.tasks.ctx.Done():
			return
		}
		defer func() { <-slots }()
		f(b.tasks.ctx)
	})
}

// ask runs a script on a mutex and takes in what its reply tells. Its errors are
// simba.ErrStopped, *simba.UnavailableError and *simba.MisconfiguredError: then it may
// have run or not.
func (b *Backend) ask(ctx context.Context, mutex string, s *script, args ...any) (*state, error) {
	if b.tasks.ctx.Err() != nil {
		return nil, simba.ErrStopped
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	all := s.command(mutex, b.header(), args...)

	sent := time.Now()
	reply, err := b.up.run(ctx, simba.MutexChannel(mutex), s, all)
	var st *state
	if err == nil {
		st, err = parseState(mutex, s, args, reply)
	}
	if err != nil {
		if b.waiters.Count(mutex) > 0 {
			b.schedule.advance(mutex, time.Now().Add(retryAfter))
		}
		return nil, b.unavailable(err)
	}
	st.sent = sent
	b.applyReply(mutex, st)
	if st.status == "full" {
		return nil, b.unavailable(errFull)
	}
	if owned := st.status == "acquired" || st.status == "renewed"; owned && time.Since(sent) >= proxy.Remaining(st.now, st.ends) {
		return nil, b.unavailable(errLate)
	}
	return st, nil
}

// errFull is the fate of who is new at a Redis that has no memory left, in Redis' own words.
var errFull = errors.New("OOM command not allowed when used memory > 'maxmemory'.")

// errLate is what an owner is told whose lease may be over when its reply arrives.
var errLate = errors.New("the answer took longer than the lease")

// header is what this server tells every script.
func (b *Backend) header() [6]any {
	return [6]any{
		b.id, b.HandoffWindow().Milliseconds(), b.QueueGrace().Milliseconds(), b.inCluster(), nil, b.fenceTTL.Milliseconds(),
	}
}

func (b *Backend) inCluster() string {
	if b.up.cluster != nil {
		return "1"
	}
	return "0"
}

// unavailable makes an error of a request into what clients are told.
func (b *Backend) unavailable(err error) error {
	if b.tasks.ctx.Err() != nil || errors.Is(err, simba.ErrStopped) {
		return simba.ErrStopped
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", b.timeout)
	}
	if refusal := lasting(err); refusal != nil {
		return &simba.MisconfiguredError{Engine: "redis", Err: refusal}
	}
	return &simba.UnavailableError{Engine: "redis", Err: err}
}

// takeIn acts on what a reply tells: events, grants, and when to look again.
func (b *Backend) applyReply(mutex string, s *state) {
	b.recordOwner(mutex, s)
	b.eventLog.Record(s.events...)
	b.counts.add(s)
	// A look may find a grant of earlier, so how much is left of it is not known.
	for _, g := range s.grants {
		if g.token == 0 {
			b.endWait(mutex, g.contender, g.ticket, proxy.Grant{Confirm: true, Over: g.ranOut})
			continue
		}
		b.deliver(mutex, g, proxy.Grant{Token: g.token, Since: s.sent, Confirm: s.status == "seen"}, true)
	}
	// Who began, renewed or handed on a lease looks when it ends. Replies are taken in
	// in any order, so where someone relies on a look, none is put off: only the look
	// itself books the next one.
	switch due := s.due != 0 && s.status != "busy" && s.status != "lost" && s.status != "full" && s.status != "seen" && s.status != "confirmed" || len(s.grants) > 0; {
	case due && b.needsReconciling(mutex):
		b.schedule.advance(mutex, s.reconcileAt())
	case due:
		b.schedule.set(mutex, s.reconcileAt(), s.now)
	case s.due == 0 && s.status == "released" && !b.needsReconciling(mutex):
		b.schedule.cancel(mutex, s.now)
	}
	if len(s.grants) == 0 && slices.ContainsFunc(s.events, isHandoff) {
		b.schedule.advance(mutex, time.Now().Add(checkAfter))
	}
}

// reliesOnLooks reports whether someone waits here, or has waited without Redis
// knowing that it is over.
func (b *Backend) needsReconciling(mutex string) bool {
	b.mu.Lock()
	orphaned := len(b.orphans[mutex]) > 0
	b.mu.Unlock()
	return orphaned || b.waiters.Count(mutex) > 0
}

func isHandoff(e simba.Event) bool { return e.Kind == simba.EventAcquired && e.Reason == "handoff" }

// dueAt is when to look again, on this server's clock, not before it is due.
func (s *state) reconcileAt() time.Time {
	return time.Now().Add(proxy.Remaining(s.now, s.due) + time.Millisecond)
}

// Acquire implements simba.Backend.
func (b *Backend) Acquire(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	if r.Waiter != nil {
		return b.acquireWaiting(ctx, r)
	}
	mode := "queue"
	if r.NoQueue {
		mode = "busy"
	}
	blocked := b.waiters.Find(r.Mutex, r.Contender)
	s, err := b.acquire(ctx, r, mode, "")
	if err != nil {
		return simba.Outcome{}, nil, err
	}
	out := s.result()
	if out.Status == simba.StatusAcquired || out.Status == simba.StatusRenewed {
		// The contender's own blocked request has what it waits for, too. One that came later asks for itself.
		if blocked == nil || !blocked.Grant(proxy.Grant{Token: s.token, Since: s.sent, Confirm: true}) {
			if b.waiters.Find(r.Mutex, r.Contender) != nil {
				b.schedule.advance(r.Mutex, time.Now())
			}
		}
	}
	return out, nil, nil
}

func (b *Backend) acquire(ctx context.Context, r simba.AcquireRequest, mode, ticket string) (*state, error) {
	return b.ask(ctx, r.Mutex, acquireScript, r.Contender, r.TTL.Milliseconds(), r.Transition.Milliseconds(),
		mode, b.session(r.Session), ticket)
}

// session names a connection among those of all servers.
func (b *Backend) session(id uint64) string {
	if id == 0 {
		return ""
	}
	return b.id + ":" + strconv.FormatUint(id, 10)
}

func tokenText(token uint64) string { return strconv.FormatUint(token, 10) }

var acquireStatuses = map[string]simba.Status{
	"acquired": simba.StatusAcquired, "renewed": simba.StatusRenewed, "busy": simba.StatusBusy,
	"queued": simba.StatusQueued, "waiting": simba.StatusWaiting,
	"timeout": simba.StatusTimeout, // of leave
}

func (s *state) result() simba.Outcome {
	return s.outcome(acquireStatuses[s.status])
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
	var t *proxy.Ticket // of the contender's own wait, if this request ends it
	if r.Token == 0 && r.Session == 0 {
		t = b.waiters.Find(r.Mutex, r.Contender)
	}
	if t != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.timeout)
		defer cancel()
		if err := b.suspend(ctx, t); err != nil {
			return false, 0, err
		}
	}
	s, err := b.ask(ctx, r.Mutex, releaseScript, r.Contender, tokenText(r.Token),
		b.session(r.Session), r.Reason)
	switch {
	case err != nil:
		if t != nil {
			b.resume(t)
		}
		return false, 0, err
	case t != nil:
		b.endReplaced(r.Mutex, r.Contender, entryOf(t).ticket)
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
	s, err := b.read(ctx, mutex)
	if err != nil {
		return simba.Tenure{}, 0, err
	}
	return s.tenure(), 0, nil
}

// look sees how a mutex stands.
func (b *Backend) read(ctx context.Context, mutex string) (*state, error) {
	return b.ask(ctx, mutex, reconcileScript, "0", "", 0)
}

// Check implements simba.Backend.
func (b *Backend) Check(ctx context.Context, mutex string, token uint64) (bool, simba.Seq, error) {
	s, err := b.read(ctx, mutex)
	return err == nil && s.owner != "" && s.token == token && time.Since(s.sent) < proxy.Remaining(s.now, s.ends), 0, err
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
			Waiting: proxy.Remaining(since, s.now), Blocked: kind == "b",
		})
	}
	return entries, 0, nil
}

// History implements simba.Backend: what this server did or saw. If the reply that tells of an
// earlier change of the mutex is not taken in yet, it waits for that, so that a client finds what it caused.
func (b *Backend) History(ctx context.Context, r simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
	if b.tasks.ctx.Err() != nil {
		return nil, 0, simba.ErrStopped
	}
	if err := b.eventLog.Await(ctx, r.Mutex); err != nil {
		return nil, 0, b.unavailable(err)
	}
	return b.eventLog.Find(r), 0, nil
}

// Commit implements simba.Committer: what Redis has answered needs no settling.
func (b *Backend) Commit(_ context.Context, seq simba.Seq) error {
	if seq != 0 && b.tasks.ctx.Err() != nil {
		return simba.ErrStopped
	}
	return nil
}

// TryCommit implements simba.Committer.
func (b *Backend) TryCommit(seq simba.Seq) (done bool, err error) {
	return true, b.Commit(context.Background(), seq)
}
