package contend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// Contender contends for a mutex as long as it runs, like Simba's MutexContendService. It calls its
// callbacks one at a time, in order. A new Contender is stopped, and a stopped one may be started
// again. It is safe for concurrent use.
type Contender struct {
	service
	onAcquired func(context.Context)
	onReleased func()
	own        atomic.Pointer[ownership] // the last one; nil = there was none
}

// New returns a stopped Contender. It calls onAcquired when it has acquired the mutex. The context
// ends when the Contender is not the owner any more; client.Token returns its fencing token. The
// Contender renews the lease until then, also after onAcquired has returned. Then it calls
// onReleased, which may be nil, and only after that it releases the mutex, or contends again.
//
// delay is Simba's initial delay, from the start to the first request. The options may set the id
// and the windows: Simba recommends a TTL of 5 to 15 s and a transition of 1 to 3 s.
func New(c *client.Client, mutex string, delay time.Duration, onAcquired func(ownership context.Context), onReleased func(), o ...client.Option) (*Contender, error) {
	switch {
	case onAcquired == nil:
		return nil, errors.New("onAcquired is nil")
	case delay < 0:
		return nil, fmt.Errorf("delay is %v, less than 0", delay)
	case onReleased == nil:
		onReleased = func() {}
	}
	k := &Contender{onAcquired: onAcquired, onReleased: onReleased}
	k.service = service{name: "the contender of " + mutex, f: func(ctx context.Context) error {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
		return c.Lead(ctx, mutex, k.lead, o...)
	}}
	return k, nil
}

// ownership is a context that ends with a tenure, or earlier by Resign.
type ownership struct {
	context.Context
	tenure context.Context
	end    context.CancelCauseFunc
}

// Err implements context.Context. Err of the tenure reads the clock, and ends both.
func (o *ownership) Err() error {
	_ = o.tenure.Err()
	return o.Context.Err()
}

func (k *Contender) lead(tenure context.Context) error {
	ctx, end := context.WithCancelCause(tenure)
	own := &ownership{ctx, tenure, end}
	k.own.Store(own)
	k.onAcquired(own)
	<-own.Done()
	k.onReleased()
	return nil
}

// IsOwner reports whether the Contender owns the mutex at this moment.
func (k *Contender) IsOwner() bool {
	own := k.own.Load()
	return own != nil && own.Err() == nil
}

// Resign releases the mutex and contends again, at the end of the queue. It ends the ownership
// context at once and does not wait for the release, so callbacks may call it. If the Contender is
// not the owner, Resign does nothing.
func (k *Contender) Resign() {
	if own := k.own.Load(); own != nil && own.Err() == nil {
		own.end(client.ErrReleased)
	}
}

// Scheduler does periodic work in one of many processes, like Simba's AbstractScheduler. A new
// Scheduler is stopped, and a stopped one may be started again. It is safe for concurrent use.
type Scheduler struct{ service }

// NewScheduler returns a stopped Scheduler, see client.Client.Every. If the work panics, the
// Scheduler logs that, and the schedule continues.
func NewScheduler(c *client.Client, mutex string, s client.Schedule, work func(ownership context.Context) error, o ...client.Option) (*Scheduler, error) {
	if work == nil {
		return nil, errors.New("work is nil")
	}
	safe := func(ctx context.Context) (err error) {
		defer func() {
			if p := recover(); p != nil {
				slog.Error("scheduled work panicked", "mutex", mutex, "panic", p, "stack", string(debug.Stack()))
			}
		}()
		return work(ctx)
	}
	return &Scheduler{service{name: "the scheduler of " + mutex, f: func(ctx context.Context) error {
		return c.Every(ctx, mutex, s, safe, o...)
	}}}, nil
}

// Locker locks a mutex, like Simba's SimbaLocker. It is safe for concurrent use.
type Locker struct {
	c       *client.Client
	mutex   string
	options []client.Option

	mu   sync.Mutex   // guards lock
	lock *client.Lock // nil = not acquired
}

// NewLocker returns a Locker that has not acquired its mutex.
func NewLocker(c *client.Client, mutex string, o ...client.Option) *Locker {
	return &Locker{c: c, mutex: mutex, options: o}
}

// Acquire waits until the Locker owns the mutex, see client.Client.Lock. It returns client.ErrInUse
// if the Locker owns it already.
func (l *Locker) Acquire(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock != nil && l.lock.Context().Err() == nil {
		return fmt.Errorf("acquire %s: %w", l.mutex, client.ErrInUse)
	}
	var err error
	l.lock, err = l.c.Lock(ctx, l.mutex, l.options...)
	return err
}

// Close releases the mutex, see client.Lock.Unlock. Without one it returns nil.
func (l *Locker) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock == nil {
		return nil
	}
	defer func() { l.lock = nil }()
	return l.lock.Unlock(context.Background())
}
