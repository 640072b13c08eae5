package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/history"
)

// Backend is the engine. It implements simba.Backend and is safe for concurrent use.
type Backend struct {
	*proxy.Core

	options Options
	target  target
	id      string // names this process in the bindings of leases
	clock   *proxy.Clock
	slots   []*slot

	mu       sync.Mutex // guards the fields below; never held during I/O or waiting
	mutexes  map[string]*mutex
	patterns map[string]struct{} // subscribed patterns that can match channels of mutexes
	root     *watcher            // watches the list of mutexes for patterns; nil = no patterns
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
	b := &Backend{
		options: o, target: target, id: string(newTag()), clock: proxy.NewClock(),
		mutexes: make(map[string]*mutex), patterns: make(map[string]struct{}),
	}
	b.Core = proxy.NewCore(o.Options, history.NewLog(o.Notices, o.History, true), b.recheck, waitEnder{b})
	if err = b.firstSessions(ctx); err != nil {
		return nil, err
	}
	for _, l := range b.slots {
		b.Go(func() { b.run(l, l.session) })
		b.Go(func() { b.serveInbox(l) })
	}
	b.Go(b.stopUnwantedWatchers)
	b.Go(func() { b.Checks.Run(b.Stopping, b.Waiters) })
	return b, nil
}

// Close ends the engine and all its goroutines. Later calls of Close only wait. Waits end with
// simba.ErrStopped, and the waiters' nodes are deleted. If a client may still own a mutex in the
// session with the ensemble, Close leaves the session open until its timeout. So nobody else gets
// the mutex before its lease or the session ends.
func (b *Backend) Close() error {
	b.Stop()
	b.Wait()
	return nil
}

// call runs a request in a goroutine of its own. The client waits for it at most Options.Timeout.
// The request goes on until the outcome of what it has sent is known. It sends nothing new once ctx
// has ended.
func call[T any](ctx context.Context, b *Backend, f func(context.Context) (T, error)) (v T, err error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	defer context.AfterFunc(b.Stopping, cancel)()
	answers := make(chan answer, 1)
	b.Go(func() {
		v, err := f(ctx)
		answers <- answer{v, err}
	})
	select {
	case a := <-answers:
		return a.value, b.failed(a.err)
	case <-ctx.Done():
		return v, b.failed(errNoAnswer)
	}
}

// with is call for a request that holds the lock of a mutex. It runs f again while f returns
// errChanged.
func with[T any](ctx context.Context, b *Backend, name string, f func(context.Context, *session, *mutex) (T, error)) (T, error) {
	return call(ctx, b, func(ctx context.Context) (v T, err error) {
		for {
			s, err := b.slotOf(name).current(ctx, b)
			if err != nil {
				return v, err
			}
			m := b.lock(name)
			if err = errNoAnswer; ctx.Err() == nil {
				v, err = f(ctx, s, m)
			}
			b.unlock(m)
			if !errors.Is(err, errChanged) {
				return v, err
			}
			if !proxy.Sleep(ctx, changedPause, nil) {
				return v, errNoAnswer
			}
		}
	})
}

// changedPause is the pause before a request lists the queue again.
const changedPause = 5 * time.Millisecond

// failed turns an error into the one that a method of simba.Backend returns.
func (b *Backend) failed(err error) error {
	switch {
	case b.Stopped():
		return simba.ErrStopped
	case err == nil, errors.Is(err, simba.ErrNotServed), errors.As(err, new(*simba.UnavailableError)), errors.As(err, new(*simba.MisconfiguredError)):
		return err
	case lasting(err), errors.Is(err, errQuotaExceeded): // a quota need not end waits
		return b.misconfigured(err)
	}
	return &simba.UnavailableError{Engine: "zookeeper", Err: err}
}

// slot holds one of several sessions. ZooKeeper reads the requests of a connection one by one, so a
// single session would be slow for many clients. A mutex always uses the same slot.
type slot struct {
	// Guarded by Backend.mu.
	session  *session
	replaced chan struct{} // closed when session is replaced
	fault    error         // of the last attempt to open a new session; requests return a lasting one at once
}

func (b *Backend) slotOf(mutex string) *slot { return b.slots[scanKey(mutex)%uint64(len(b.slots))] }

// current returns the session. If there is none, it waits for a new one, at most until ctx ends.
func (l *slot) current(ctx context.Context, b *Backend) (*session, error) {
	for {
		b.mu.Lock()
		s, replaced, fault := l.session, l.replaced, l.fault
		b.mu.Unlock()
		switch {
		case s.alive():
			return s, nil
		case lasting(fault):
			return nil, fault
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return nil, errCutOff
		}
	}
}

// LongestLease returns the longest lease, ttl + transition, that the sessions vouch for: half of
// their shortest timeout. The ensemble chooses the timeout anew whenever a session reconnects.
func (b *Backend) LongestLease() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	shortest := b.slots[0].session.negotiated()
	for _, l := range b.slots[1:] {
		shortest = min(shortest, l.session.negotiated())
	}
	return shortest / 2
}
