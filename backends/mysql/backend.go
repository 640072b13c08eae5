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
	"github.com/simba-resp/simba-resp/credentials"
)

// Backend keeps mutexes in a table of MySQL or MariaDB. It implements simba.Backend
// and is safe for concurrent use.
type Backend struct {
	proxy.QueueSettings

	store    store
	source   *credentials.Source[target]
	endpoint endpoint
	checks   *proxy.Checks
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
	refreshSlots chan struct{} // bounds concurrent background refreshes

	reconnecting priorityLock

	tableLock priorityLock // held while the whole table is read
	// tableRows has the rows with a running lease as of the last read of the table; nil = no
	// pattern subscriber. Guarded by tableLock.
	tableRows map[string]row

	// mu guards the fields below, and the queue of every mutexState. It is never held during I/O.
	mu        sync.Mutex
	closed    bool
	running   sync.WaitGroup // requests and goroutines; call Add under mu, and only if not closed
	mutexes   map[string]*mutexState
	lastOrder uint64 // entry.order of the newest queue entry
	sessions  map[string]binding
	patterns  map[string]struct{} // subscribed patterns that can match channels of mutexes
}

type counts struct {
	acquired, renewed, released, expired, broken, handoffs atomic.Int64
}

// maxRefreshes bounds concurrent background refreshes, so that requests find free connections.
const maxRefreshes = maxConns / 2

var _ simba.Backend = (*Backend)(nil)

func newBackend(o Options, s store, ep endpoint, checks *proxy.Checks) *Backend {
	b := &Backend{
		store: s, endpoint: ep, checks: checks, log: o.Logger, notices: o.Notices, timeout: o.Timeout, poll: o.Poll,
		eventLog:     proxy.NewEventLog(o.Notices, o.History),
		refreshSlots: make(chan struct{}, maxRefreshes),
		mutexes:      make(map[string]*mutexState),
		sessions:     make(map[string]binding),
		patterns:     make(map[string]struct{}),
	}
	b.waiters = proxy.NewWaiters((*waitEnder)(b))
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.SetHandoffWindow(o.HandoffWindow)
	b.SetQueueGrace(o.QueueGrace)
	return b
}

// CertificatesExpire returns when the certificates of the connections expire, by setting.
func (b *Backend) CertificatesExpire() map[string]time.Time {
	return b.source.Get().expires
}

// Close ends all requests with simba.ErrStopped. It closes all connections and waits for all
// goroutines. Later calls only wait.
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
	_ = b.store.db.Close() // an error of a broken connection does not matter
	return nil
}

// Faults returns what is wrong with the settings of the database.
func (b *Backend) Faults() []proxy.Fault { return b.checks.Faults() }

// begin starts a request. The returned context ends with ctx, after the time limit, or on Close.
// The caller calls done at the end.
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

// start adds a request to the wait group running, so that Close waits for it. It returns false
// after Close.
func (b *Backend) start() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running.Add(1)
	return true
}

func (b *Backend) fail(err error) error {
	var name *simba.NameError
	var refusal *simba.MisconfiguredError
	busy := false
	switch {
	case err == nil:
		return nil
	case b.ctx.Err() != nil:
		return simba.ErrStopped
	case errors.As(err, &name), errors.As(err, &refusal):
		return err
	case errors.Is(err, errBusy), errors.Is(err, errLocked), errors.Is(err, errLate), errors.Is(err, errKeepsChanging):
		busy = true
	case isFull(err):
		busy = true
		err = fmt.Errorf("the database has no space for a new mutex or owner: %w", err)
	default:
		if f := b.endpoint.fault(err); f != nil {
			return &simba.MisconfiguredError{Engine: "mysql", Err: f}
		}
		if isReadOnly(err) || errorNumber(err) == 0 && !errors.Is(err, context.Canceled) {
			// Other idle connections may be broken too, or lead to a demoted primary. Replace all
			// of them, not one for each failed request.
			b.reconnect()
		}
	}
	return &simba.UnavailableError{Engine: "mysql", Err: err, Busy: busy}
}

// failAt is like fail, for a request about one mutex. If the database refuses what the engine
// needs, failAt schedules a refresh, so that blocked waiters soon get the same error.
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

// reconnect closes the idle connections of the pool. Only one call runs at a time. If calls
// overlapped, database/sql could close the wrong connection, and lose a slot of the pool for ever.
func (b *Backend) reconnect() {
	if b.reconnecting.lock(b.ctx, false) != nil {
		return // the backend is closed
	}
	defer b.reconnecting.unlock()
	b.store.db.SetMaxIdleConns(0)
	b.store.db.SetMaxIdleConns(maxConns)
}

// errLate is returned when the lease ended before the database's answer arrived.
var errLate = errors.New("the database answered after the end of the lease")

// errKeepsChanging is returned when every attempt of a request found another state.
var errKeepsChanging = errors.New("the mutex or the database's clock changed at each attempt")

// attempts limits how often the engine tries a request. The engine tries again if the mutex has
// changed since it was read.
const attempts = 5

// Commit implements simba.Committer. A change is durable when the database has answered, so there
// is nothing to wait for.
func (b *Backend) Commit(seq simba.Seq) error {
	if seq != 0 && b.ctx.Err() != nil {
		return simba.ErrStopped
	}
	return nil
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
		Broken: b.counts.broken.Load(), Handoffs: b.counts.handoffs.Load(),
		TenureLengths: b.eventLog.TenureLengths(),
		Seq:           b.eventLog.Seq(),
	}
}

// History implements simba.Backend. It returns the events that this server caused or observed.
func (b *Backend) History(_ context.Context, r simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
	if b.ctx.Err() != nil {
		return nil, 0, simba.ErrStopped
	}
	return b.eventLog.Find(r), 0, nil
}

// checkNames returns an error for names that the table cannot hold. It ignores an empty contender.
func (b *Backend) checkNames(mutex, contender string) error {
	if err := b.store.table.mutex.check("mutex", mutex); err != nil {
		return err
	}
	return b.store.table.owner.check("contender", contender)
}
