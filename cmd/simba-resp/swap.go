package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
)

// swap is the engine of a member of a cluster: the one of the present term. While the member does not
// lead, it is an engine that has stopped. No connection may outlive its engine, because tickets and
// watches belong to one engine.
type swap struct {
	present atomic.Pointer[engine.Engine]
	stopped *engine.Engine

	mu            sync.Mutex // protects the settings, which each engine gets
	window, grace time.Duration
	queues        int64
}

var (
	_ liveBackend    = (*swap)(nil)
	_ simba.Keyspace = (*swap)(nil)
)

func newSwap(window, grace time.Duration) (*swap, error) {
	e, err := engine.New(engine.Config{Clock: engine.NewClock(0)}, engine.Memory(), engine.Recovery{})
	if err != nil {
		return nil, err
	}
	e.Stop()
	s := &swap{stopped: e, window: window, grace: grace}
	s.present.Store(e)
	return s, nil
}

// use makes e the present engine.
func (s *swap) use(e *engine.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyLocked(e)
	s.present.Store(e)
}

func (s *swap) applyLocked(e *engine.Engine) {
	e.SetHandoffWindow(s.window)
	e.SetQueueGrace(s.grace)
	e.LimitQueues(s.queues)
}

// set changes the settings, also those of the present engine.
func (s *swap) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.applyLocked(s.present.Load())
}

// SetHandoffWindow implements liveBackend.
func (s *swap) SetHandoffWindow(d time.Duration) { s.set(func() { s.window = d }) }

// SetQueueGrace implements liveBackend.
func (s *swap) SetQueueGrace(d time.Duration) { s.set(func() { s.grace = d }) }

// LimitQueues implements simba.Keyspace.
func (s *swap) LimitQueues(bytes int64) { s.set(func() { s.queues = bytes }) }

// The other methods are those of the present engine.

func (s *swap) Commit(seq simba.Seq) error { return s.present.Load().Commit(seq) }

func (s *swap) Acquire(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	return s.present.Load().Acquire(ctx, r)
}

func (s *swap) Guard(ctx context.Context, r simba.GuardRequest) (simba.Outcome, error) {
	return s.present.Load().Guard(ctx, r)
}

func (s *swap) Release(ctx context.Context, r simba.ReleaseRequest) (bool, simba.Seq, error) {
	return s.present.Load().Release(ctx, r)
}

func (s *swap) Owner(ctx context.Context, mutex string) (simba.Tenure, simba.Seq, error) {
	return s.present.Load().Owner(ctx, mutex)
}

func (s *swap) Queue(ctx context.Context, mutex string, count int) ([]simba.QueueEntry, simba.Seq, error) {
	return s.present.Load().Queue(ctx, mutex, count)
}

func (s *swap) Scan(ctx context.Context, r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
	return s.present.Load().Scan(ctx, r)
}

func (s *swap) Check(ctx context.Context, mutex string, token uint64) (bool, simba.Seq, error) {
	return s.present.Load().Check(ctx, mutex, token)
}

func (s *swap) Break(ctx context.Context, mutex, reason string) (bool, simba.Seq, error) {
	return s.present.Load().Break(ctx, mutex, reason)
}

func (s *swap) History(ctx context.Context, r simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
	return s.present.Load().History(ctx, r)
}

func (s *swap) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	return s.present.Load().Subscribed(ctx, channel, pattern)
}

func (s *swap) Stats() simba.Stats { return s.present.Load().Stats() }

func (s *swap) Update(f func(simba.Tx) error) (simba.Seq, error) { return s.present.Load().Update(f) }

func (s *swap) UpdateOne(mutex string, f func(simba.Tx) error) (simba.Seq, error) {
	return s.present.Load().UpdateOne(mutex, f)
}

func (s *swap) Watch(mutex string, queue bool) uint64 { return s.present.Load().Watch(mutex, queue) }

func (s *swap) Unwatch(mutex string) { s.present.Load().Unwatch(mutex) }

func (s *swap) Bytes() int64 { return s.present.Load().Bytes() }
