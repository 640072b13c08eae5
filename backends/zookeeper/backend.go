package zookeeper

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Backend is the engine. It implements simba.Backend and is safe for concurrent use.
type Backend struct {
	*proxy.Engine
	store *store
}

var _ simba.Backend = (*Backend)(nil)

// Open connects to the ensemble and checks that it can keep mutexes. The chroot must exist, the
// user must have the right to create nodes, and the ensemble must support container nodes
// (ZooKeeper 3.5).
func Open(ctx context.Context, o Options) (*Backend, error) {
	o.SessionTimeout = cmp.Or(o.SessionTimeout, DefaultSessionTimeout)
	o.SetDefaults("zookeeper")
	target, err := o.parse()
	if err != nil {
		return nil, err
	}
	st := &store{
		Life: proxy.NewLife(), options: o, target: target, log: o.Logger, clock: proxy.NewClock(),
		mutexes: make(map[string]*mutex), watched: make(map[string]*watcher),
	}
	e, err := proxy.Open(ctx, o.Options, st)
	if err != nil {
		return nil, err
	}
	return &Backend{e, st}, nil
}

// LongestLease returns the longest lease, ttl + transition, that the sessions vouch for: half of
// their shortest timeout. The ensemble chooses the timeout anew whenever a session reconnects.
func (b *Backend) LongestLease() time.Duration { return b.store.longestLease() }

// store is the proxy.Queue of the engine.
type store struct {
	*proxy.Life

	options Options
	target  target
	log     *slog.Logger
	clock   *proxy.Clock
	slots   []*slot
	hooks   proxy.Hooks

	mu      sync.Mutex // guards the fields below; never held during I/O or waiting
	mutexes map[string]*mutex
	watched map[string]*watcher
	root    *watcher // watches the list of mutexes; nil = not needed
}

var _ proxy.Queue = (*store)(nil)

// Start implements proxy.Store.
func (st *store) Start(ctx context.Context, h proxy.Hooks) error {
	st.hooks = h
	if err := st.firstSessions(ctx); err != nil {
		return err
	}
	for _, l := range st.slots {
		st.Go(func() { st.run(l, l.session) })
		st.Go(func() { st.serveInbox(l) })
	}
	return nil
}

// Close implements proxy.Store. The waiters' nodes are deleted. If a client may still own a mutex in
// a session with the ensemble, Close leaves the session open until its timeout. So nobody else gets
// the mutex before its lease or the session ends.
func (st *store) Close() error {
	st.Stop()
	st.Wait()
	return nil
}

// CheckNames implements proxy.Store. All names fit.
func (st *store) CheckNames(string, string) error { return nil }

// Horizon implements proxy.Store. A settled Read has waited for all earlier steps.
func (st *store) Horizon(time.Time) int64 { return 0 }

// Ping implements proxy.Store. The store is away if no session has an answer.
func (st *store) Ping(ctx context.Context) (err error) {
	answers := make(chan error, len(st.slots))
	for _, l := range st.slots {
		go func() {
			_, err := call(ctx, st, func(ctx context.Context) (none struct{}, err error) {
				s, err := l.current(ctx, st)
				if err == nil {
					err = s.barrier(ctx)
				}
				return none, err
			})
			answers <- err
		}()
	}
	for range st.slots {
		if err = <-answers; err == nil {
			break
		}
	}
	return err
}

// slot holds one of several sessions. ZooKeeper reads the requests of a connection one by one, so a
// single session would be slow for many clients. A mutex always uses the same slot.
type slot struct {
	// Guarded by store.mu.
	session  *session
	replaced chan struct{} // closed when session is replaced
	fault    error         // of the last attempt to open a new session; requests return one that stays at once
}

func (st *store) slotOf(mutex string) *slot { return st.slots[st.ScanKey(mutex)%uint64(len(st.slots))] }

// current returns the session. If there is none, it waits for a new one, at most until ctx ends.
func (l *slot) current(ctx context.Context, st *store) (*session, error) {
	for {
		st.mu.Lock()
		s, replaced, fault := l.session, l.replaced, l.fault
		st.mu.Unlock()
		_, stays := st.fault(fault)
		switch {
		case s.alive():
			return s, nil
		case stays:
			return nil, fault
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return nil, errCutOff
		}
	}
}

func (st *store) longestLease() time.Duration {
	st.mu.Lock()
	defer st.mu.Unlock()
	shortest := st.slots[0].session.negotiated()
	for _, l := range st.slots {
		shortest = min(shortest, l.session.negotiated())
	}
	return shortest / 2
}
