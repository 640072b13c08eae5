package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/history"
)

// Engine keeps mutexes in a Store. It has the queue of this server's waiters. It implements
// simba.Backend and is safe for concurrent use.
type Engine struct {
	*Core

	options Options
	store   Store
	queue   Queue // the store, if it is one

	refreshSlots chan struct{} // bounds concurrent background refreshes
	lockedSlots  chan struct{} // bounds concurrent steps of locked mutexes
	settling     sync.Map      // the mutexes and contenders of settleLater calls that wait

	tableLock priorityLock // held while all mutexes are read; no call is for an owner
	// table has the held mutexes as of the last read of all; nil = no pattern subscriber. Guarded
	// by tableLock.
	table map[string]State

	// mu guards the fields below, and the queue of every mutexState. It is never held during I/O.
	mu       sync.Mutex
	mutexes  map[string]*mutexState
	sessions map[string]binding
	begun    map[string]uint64   // the revision of the last tenure in Events, by mutex
	patterns map[string]struct{} // subscribed patterns that can match channels of mutexes
	// allListed is closed when the mutexes are watched that existed when the first pattern came. nil =
	// no pattern. Of a Queue.
	allListed chan struct{}
}

// Options configure an Engine.
type Options struct {
	Name    string        // of the engine, for its errors
	Notices simba.Notices // carries notices to subscribers of this server; required
	Logger  *slog.Logger  // receives warnings about the store; nil = none
	Timeout time.Duration // bounds each request to the store; 0 = 3 s
	// Poll is how often the engine reads a mutex that a client of this server waits for or
	// subscribes to. The read finds a release through another server. 0 = the engine reads only
	// around the end of the lease, from 200 ms before it to 1 s after it. Simba's JDBC contenders
	// do the same.
	Poll time.Duration

	HandoffWindow time.Duration // see QueueSettings.SetHandoffWindow; 0 = no reservations
	QueueGrace    time.Duration // see QueueSettings.SetQueueGrace; 0 = no grace
	History       int           // number of events kept; 0 = history.DefaultLimit
}

// SetDefaults sets the name, and what is 0 and must not be.
func (o *Options) SetDefaults(name string) {
	o.Name = name
	o.Timeout = cmp.Or(o.Timeout, 3*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
}

const (
	// maxRefreshes bounds concurrent background refreshes, so that requests find free connections.
	maxRefreshes = 16
	// maxLocked bounds the steps that wait for mutexes known to be locked by other transactions.
	// Such a step occupies a connection of the store for about a second.
	maxLocked = 8
	// attempts limits how often the engine tries a request. It tries again if the mutex has changed
	// since it was read.
	attempts = 5
)

var _ simba.Backend = (*Engine)(nil)

// Open checks the store and starts an engine on it. It logs a warning for each setting that weakens
// the engine's guarantees. After an error it closes the store.
func Open(ctx context.Context, o Options, s Store) (*Engine, error) {
	o.SetDefaults(o.Name)
	e := &Engine{
		options: o, store: s,
		refreshSlots: make(chan struct{}, maxRefreshes),
		lockedSlots:  make(chan struct{}, maxLocked),
		mutexes:      make(map[string]*mutexState),
		sessions:     make(map[string]binding),
		begun:        make(map[string]uint64),
		patterns:     make(map[string]struct{}),
		tableLock:    newPriorityLock(),
	}
	e.queue, _ = s.(Queue)
	check := func(ctx context.Context) ([]Fault, error) {
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		return s.Check(ctx)
	}
	e.Core = NewCore(o, history.NewLog(o.Notices, o.History, true), check, waitEnder{e})
	err := s.Start(ctx, Hooks{
		Connected: e.Checks.Again, Changed: e.changed,
		Left: e.left, Listens: e.listens, Listeners: e.listeners, Listed: e.listed, Lost: e.lost,
	})
	if err == nil {
		err = e.Checks.Start(ctx)
	}
	if err == nil {
		err = e.within(ctx, o.Timeout, s.Ping)
	}
	if err != nil {
		_ = s.Close() // err says more
		return nil, err
	}
	e.Go(func() { e.Checks.Run(e.Stopping, e.Waiters) })
	e.Go(e.maintain)
	return e, nil
}

// Close ends all requests with simba.ErrStopped. It closes the store and waits for all goroutines.
// Later calls only wait.
func (e *Engine) Close() error {
	first := e.Stop()
	e.Wait()
	if first {
		_ = e.store.Close() // an error of a broken connection does not matter
	}
	return nil
}

// serve runs a request with its time limit. While the store is known to be away, serve fails.
func (e *Engine) serve(ctx context.Context, request func(context.Context) error) error {
	if away := e.Away(); away != nil && !e.Stopped() {
		return away
	}
	if !e.Begin() {
		return simba.ErrStopped
	}
	defer e.Done()
	return e.fail(e.within(ctx, e.options.Timeout, request))
}

var (
	// errBusy is returned when a request could not get the mutex's lock before its deadline.
	errBusy = errors.New("too many requests for the mutex are waiting for the store")
	// errLate is returned when the lease ended before the store's answer arrived.
	errLate = errors.New("the store answered after the end of the lease")
	// errKeepsChanging is returned when every attempt of a request found another state.
	errKeepsChanging = errors.New("the mutex or the store's clock changed at each attempt")
	// errLocked is returned when a request could not wait for a locked mutex.
	errLocked = NotDone{errors.New("another transaction has locked the mutex in the store, and too many requests wait for such mutexes"), true}
)

func isLocked(err error) bool {
	var n NotDone
	return errors.As(err, &n) && n.Locked
}

func isNotDone(err error) bool { return errors.As(err, new(NotDone)) }

func isRefusal(err error) bool { return errors.As(err, new(*simba.MisconfiguredError)) }

// fail returns the error of a request to its caller. If the store may be away, it finds out.
func (e *Engine) fail(err error) error {
	switch {
	case err == nil:
		return nil
	case e.Stopped():
		return simba.ErrStopped
	case isRefusal(err):
		e.Checks.Again() // it fails the blocked waiters
		return err
	case errors.As(err, new(*simba.NameError)), errors.As(err, new(*simba.UnavailableError)), errors.Is(err, simba.ErrNotServed):
		return err
	}
	busy := isNotDone(err) || errors.Is(err, errBusy) || errors.Is(err, errLate) || errors.Is(err, errKeepsChanging)
	if !busy && !errors.Is(err, context.Canceled) {
		e.Probe(e.options.Timeout, e.store.Ping, func() { e.changed("") })
	}
	return &simba.UnavailableError{Engine: e.options.Name, Err: err, Busy: busy}
}

// Stats implements simba.Backend.
func (e *Engine) Stats() simba.Stats {
	s := e.Core.Stats()
	e.mu.Lock()
	defer e.mu.Unlock()
	all := int64(0)
	for _, m := range e.mutexes {
		all += int64(len(m.entries))
	}
	s.Polling = max(0, all-s.Blocked)
	return s
}
