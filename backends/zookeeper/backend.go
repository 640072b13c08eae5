package zookeeper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/history"
)

// Backend is the engine. It implements simba.Backend and is safe for concurrent use.
type Backend struct {
	proxy.QueueSettings

	options Options
	target  target
	log     *slog.Logger
	notices simba.Notices
	id      string // names this process in lease records

	slots    []*sessionSlot
	waiters  *proxy.Waiters
	eventLog *history.Log
	checks   *proxy.Checks
	clock    storeClock
	counters counters

	life  context.Context // ends with Close; background work uses it
	close context.CancelFunc
	all   sync.WaitGroup // requests and background work

	mu       sync.Mutex // guards the fields below; never held during I/O, logging or waiting
	closed   bool
	mutexes  map[string]*mutex
	creating map[guid]struct{} // nodes that are being created
	// orphans has the nodes that are to be deleted. The value is the last known version of the
	// lease node.
	orphans      map[nodeKey]map[guid]int32
	createdNodes map[guid]*node // nodes that this server created
	keyLocks     map[nodeKey]*keyLock
	patterns     map[string]struct{} // subscribed patterns that can match channels of mutexes
	root         *watcher            // watches the list of mutexes for patterns; nil = no patterns
}

// nodeKey identifies a node: a contender has at most one in a mutex.
type nodeKey struct{ mutex, contender string }

type counters struct {
	acquired, renewed, released, expired, broken, handoffs atomic.Int64
	token                                                  atomic.Uint64
}

var (
	_ simba.Backend   = (*Backend)(nil)
	_ proxy.WaitEnder = (*Backend)(nil)
)

// Open connects to the ensemble and checks that it can keep mutexes. The chroot must exist, the
// user must have the right to create nodes, and the ensemble must support container nodes
// (ZooKeeper 3.5).
func Open(ctx context.Context, o Options) (*Backend, error) {
	o.ensureDefaults()
	target, err := o.validate()
	if err != nil {
		return nil, err
	}
	var raw [4]byte
	rand.Read(raw[:])
	b := &Backend{
		options:      o,
		target:       target,
		log:          o.Logger,
		notices:      o.Notices,
		id:           hex.EncodeToString(raw[:]),
		eventLog:     history.NewLog(o.Notices, o.History, true),
		mutexes:      make(map[string]*mutex),
		creating:     make(map[guid]struct{}),
		orphans:      make(map[nodeKey]map[guid]int32),
		createdNodes: make(map[guid]*node),
		keyLocks:     make(map[nodeKey]*keyLock),
		patterns:     make(map[string]struct{}),
	}
	b.waiters = proxy.NewWaiters(b)
	b.checks = proxy.NewChecks("zookeeper", b.log, b.recheck)
	b.SetHandoffWindow(o.HandoffWindow)
	b.SetQueueGrace(o.QueueGrace)
	sessions, err := b.firstSessions(ctx)
	if err != nil {
		return nil, err
	}
	b.life, b.close = context.WithCancel(context.Background())
	for _, s := range sessions {
		b.slots = append(b.slots, &sessionSlot{session: s, renewed: make(chan struct{})})
	}
	for i, s := range sessions {
		b.all.Go(func() { b.runSlot(b.slots[i], s) })
	}
	b.all.Go(b.stopUnwantedWatchers)
	b.all.Go(func() { b.checks.Run(b.life, b.waiters) })
	return b, nil
}

// Faults returns what is wrong with the settings of the ensemble.
func (b *Backend) Faults() []proxy.Fault { return b.checks.Faults() }

// Close ends the engine and all its goroutines. Later calls of Close do nothing. Waits end with
// simba.ErrStopped, and the waiters' nodes are deleted. If a client may still own a mutex in a
// session with the ensemble, Close leaves this session open until its timeout. So nobody else gets
// the mutex before its lease or the session ends.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.close()
	b.all.Wait()
	return nil
}

// enter begins a request. The caller must call the returned function when the request is done. The
// returned context ends after Options.Timeout or with Close.
func (b *Backend) enter(ctx context.Context) (context.Context, func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, simba.ErrStopped
	}
	b.all.Add(1)
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	stop := context.AfterFunc(b.life, cancel)
	return ctx, func() {
		stop()
		cancel()
		b.all.Done()
	}, nil
}

// background runs f in a goroutine unless the engine is closed. f must end when b.life does.
func (b *Backend) background(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.all.Go(f)
	}
}

// failed turns an error into the one that a method of simba.Backend returns.
func (b *Backend) failed(err error) error {
	var name *simba.NameError
	switch {
	case err == nil:
		return nil
	case b.life.Err() != nil:
		return simba.ErrStopped
	case errors.As(err, &name), errors.Is(err, simba.ErrNotServed):
		return err
	case lasting(err), errors.Is(err, errQuotaExceeded): // a quota need not end waits
		return b.misconfigured(err)
	}
	return &simba.UnavailableError{Engine: "zookeeper", Err: err}
}

// keyLock makes the requests of one contender for one mutex run one after another.
type keyLock struct {
	free  chan struct{} // has one element while unlocked
	users int           // guarded by Backend.mu
}

// lockKey waits for the lock of a key and returns its unlock function. It returns errNoAnswer if
// ctx ends first.
func (b *Backend) lockKey(ctx context.Context, k nodeKey) (unlock func(), err error) {
	b.mu.Lock()
	l := b.keyLocks[k]
	if l == nil {
		l = &keyLock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		b.keyLocks[k] = l
	}
	l.users++
	b.mu.Unlock()
	leave := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(b.keyLocks, k)
		}
	}
	select {
	case <-l.free:
		return func() { l.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, errNoAnswer
	}
}

// History implements simba.Backend. It returns the events that this server caused or observed.
func (b *Backend) History(ctx context.Context, r simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
	_, leave, err := b.enter(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	return b.eventLog.Find(r), 0, nil
}

// Stats implements simba.Backend. Held and Mutexes are unknown: only Scan reads them from the
// ensemble.
func (b *Backend) Stats() simba.Stats {
	return simba.Stats{
		Held:          -1,
		Mutexes:       -1,
		Blocked:       int64(b.waiters.Len()),
		Polling:       -1,
		Acquired:      b.counters.acquired.Load(),
		Renewed:       b.counters.renewed.Load(),
		Released:      b.counters.released.Load(),
		Expired:       b.counters.expired.Load(),
		Broken:        b.counters.broken.Load(),
		Handoffs:      b.counters.handoffs.Load(),
		TenureLengths: b.eventLog.TenureLengths(),
		Seq:           b.eventLog.Seq(),
		Token:         b.counters.token.Load(),
	}
}

// Commit implements simba.Committer. Every answer of the ensemble is durable already.
func (b *Backend) Commit(seq simba.Seq) error {
	if seq == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return simba.ErrStopped
	}
	return nil
}
