package mysql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Backend keeps mutexes in a table of MySQL or MariaDB. It implements simba.Backend
// and is safe for concurrent use.
type Backend struct {
	proxy.Windows

	store    store
	endpoint endpoint
	log      *slog.Logger
	notices  simba.Notices
	timeout  time.Duration
	poll     time.Duration
	waiters  *proxy.Waiters
	eventLog *proxy.EventLog
	tenures  tenures
	counts   counts

	ctx          context.Context // ends when Close is called
	stop         context.CancelFunc
	refreshSlots chan struct{} // bounds the looks that run at a time

	reconnecting priorityLock

	tableLock priorityLock   // for one look at the whole table at a time
	tableRows map[string]row // of the one in it: what the table showed; nil = nobody wants to know

	mu       sync.Mutex // guards what follows, and every line's queue; held for no I/O
	closed   bool
	running  sync.WaitGroup // requests and goroutines; added to under mu while not closed
	mutexes  map[string]*mutexState
	order    uint64 // of the last entry in a queue
	sessions map[string]binding
	patterns map[string]struct{} // of subscribers, those that can match our channels
}

// counts are the figures of Stats.
type counts struct {
	acquired, renewed, released, expired, broken, handedOn atomic.Int64
}

// maxLooks is how many mutexes are looked at at a time. It leaves connections for
// requests.
const maxRefreshes = maxConns / 2

var _ simba.Backend = (*Backend)(nil)

func newBackend(o Options, s store, ep endpoint) *Backend {
	b := &Backend{
		store: s, endpoint: ep, log: o.Logger, notices: o.Notices, timeout: o.Timeout, poll: o.Poll,
		eventLog:     proxy.NewEventLog(o.Notices, 0),
		refreshSlots: make(chan struct{}, maxRefreshes),
		mutexes:      make(map[string]*mutexState),
		sessions:     make(map[string]binding),
		patterns:     make(map[string]struct{}),
	}
	b.waiters = proxy.NewWaiters((*waiterStore)(b))
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.SetHandoffWindow(o.HandoffWindow)
	b.SetQueueGrace(o.QueueGrace)
	return b
}

// Close ends all requests, with simba.ErrStopped, all goroutines and connections, and
// waits for them. It may be called again.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	for _, m := range b.mutexes {
		m.disarm()
	}
	b.mu.Unlock()
	b.stop()
	b.running.Wait()
	if !first {
		return nil
	}
	_ = b.store.db.Close() // fails on a connection that was cut: it is closed all the same
	return nil
}

// begin begins a request to the store: it returns a context that ends with ctx, with
// the time limit and with the backend. The caller calls done at the end.
func (b *Backend) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	if !b.start() {
		return nil, nil, simba.ErrStopped
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	detach := context.AfterFunc(b.ctx, cancel)
	return ctx, func() {
		detach()
		cancel()
		b.running.Done()
	}, nil
}

// start adds to what Close waits for, unless it was called.
func (b *Backend) start() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running.Add(1)
	return true
}

// fail makes of a failed request's error what the caller is told.
func (b *Backend) fail(err error) error {
	var name *simba.NameError
	switch {
	case err == nil:
		return nil
	case b.ctx.Err() != nil:
		return simba.ErrStopped
	case errors.As(err, &name):
		return err
	case errors.Is(err, errBusy), errors.Is(err, errLocked), errors.Is(err, errLate), errors.Is(err, errKeepsChanging):
	case isFull(err):
		err = fmt.Errorf("the database has no room for a new mutex or owner: %w", err)
	default:
		if f := b.endpoint.fault(err); f != nil {
			return &simba.MisconfiguredError{Engine: "mysql", Err: f}
		}
		if isReadOnly(err) || errorNumber(err) == 0 && !errors.Is(err, context.Canceled) {
			// Other connections of the pool may be as dead, or lead to a server that was
			// primary once: have them made anew instead of failing one by one.
			b.reconnect()
		}
	}
	return &simba.UnavailableError{Engine: "mysql", Err: err}
}

// failAt is fail for a request for a mutex. If the database refuses what the engine needs,
// a look soon meets that for those who are blocked there.
func (b *Backend) failAt(m *mutexState, err error) error {
	err = b.fail(err)
	if refusal := (*simba.MisconfiguredError)(nil); errors.As(err, &refusal) && b.hasBlocked(m) {
		soon := time.Now().Add(firstRetry)
		b.mu.Lock()
		if soon.Before(m.refreshAt) {
			m.refreshAt = soon
		}
		b.mu.Unlock()
	}
	return err
}

// reconnect closes the pool's idle connections, one call at a time: if the limit were
// raised again while another call is closing, database/sql could close the wrong
// connection and lose another one, and its place in the pool, for ever.
func (b *Backend) reconnect() {
	if b.reconnecting.lock(b.ctx, false) != nil {
		return // the backend is closed
	}
	defer b.reconnecting.unlock()
	b.store.db.SetMaxIdleConns(0)
	b.store.db.SetMaxIdleConns(maxConns)
}

// errLate is why a request fails whose lease was over before its answer came.
var errLate = errors.New("the database's answer came after the lease's end")

// errRestless is why a request fails that met another state each time it looked.
var errKeepsChanging = errors.New("the mutex or the database's clock changed at each look")

// attempts is how often a request looks again when the state changed under it.
const attempts = 5

// Commit implements simba.Committer. What the store has said is durable already.
func (b *Backend) Commit(_ context.Context, seq simba.Seq) error {
	if seq != 0 && b.ctx.Err() != nil {
		return simba.ErrStopped
	}
	return nil
}

// TryCommit implements simba.Committer.
func (b *Backend) TryCommit(seq simba.Seq) (done bool, err error) {
	return true, b.Commit(context.Background(), seq)
}

// Stats implements simba.Backend.
func (b *Backend) Stats() simba.Stats {
	blocked := int64(b.waiters.Len())
	b.mu.Lock()
	all := int64(0)
	for _, m := range b.mutexes {
		all += int64(len(m.entries))
	}
	b.mu.Unlock()
	return simba.Stats{
		Held: -1, Mutexes: -1, Blocked: blocked, Polling: max(0, all-blocked),
		Acquired: b.counts.acquired.Load(), Renewed: b.counts.renewed.Load(),
		Released: b.counts.released.Load(), Expired: b.counts.expired.Load(),
		Broken: b.counts.broken.Load(), HandedOn: b.counts.handedOn.Load(),
		Seq: b.eventLog.Seq(),
	}
}

// History implements simba.Backend: of what this server did and saw.
func (b *Backend) History(_ context.Context, r simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
	if b.ctx.Err() != nil {
		return nil, 0, simba.ErrStopped
	}
	return b.eventLog.Find(r), 0, nil
}

// checkNames refuses names that the table cannot hold; contender "" = none.
func (b *Backend) checkNames(mutex, contender string) error {
	if err := b.store.table.mutex.check("mutex", mutex); err != nil {
		return err
	}
	return b.store.table.owner.check("contender", contender)
}
