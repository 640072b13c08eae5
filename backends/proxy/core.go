package proxy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/history"
)

// Core is what an engine of a store has besides its mutexes: its life cycle, checks, waiters,
// events and figures. The engine embeds it. Safe for concurrent use.
type Core struct {
	QueueSettings

	Log     *slog.Logger
	Notices simba.Notices
	Checks  *Checks
	Waiters *Waiters
	Events  *history.Log
	Counts  Counts
	*Life

	name    string
	token   atomic.Uint64 // the largest seen
	probing atomic.Bool
	away    atomic.Pointer[simba.UnavailableError] // not nil = the store is away
}

// Life counts requests and goroutines, so that their owner can end. Safe for concurrent use.
type Life struct {
	Stopping context.Context // ends when Stop is called
	stop     context.CancelFunc

	mu      sync.Mutex // guards stopped, and running.Add against running.Wait
	stopped bool
	running sync.WaitGroup
}

// NewLife returns the Life of something that runs.
func NewLife() *Life {
	l := &Life{}
	l.Stopping, l.stop = context.WithCancel(context.Background())
	return l
}

// Counts are figures of a server since its start.
type Counts struct{ Acquired, Renewed, Released, Expired, Broken, Handoffs atomic.Int64 }

// NewCore returns the core of an engine. The options must have their defaults.
func NewCore(o Options, events *history.Log, check func(context.Context) ([]Fault, error), e WaitEnder) *Core {
	c := &Core{
		Log: o.Logger, Notices: o.Notices, Events: events, Life: NewLife(), name: o.Name,
		Checks:  NewChecks(o.Name, o.Logger, check),
		Waiters: NewWaiters(e),
	}
	c.SetHandoffWindow(o.HandoffWindow)
	c.SetQueueGrace(o.QueueGrace)
	return c
}

// Begin makes Wait wait for a request, until Done is called. After Stop it returns false.
func (c *Life) Begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.running.Add(1)
	}
	return !c.stopped
}

// Done ends a request for which Begin returned true.
func (c *Life) Done() { c.running.Done() }

// Go runs f in a goroutine, for which Wait waits. After Stop it returns false and does not run f.
func (c *Life) Go(f func()) bool {
	if !c.Begin() {
		return false
	}
	go func() {
		defer c.Done()
		f()
	}()
	return true
}

// Stop ends Stopping. It reports whether this is the first call.
func (c *Life) Stop() (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = !c.stopped
	c.stopped = true
	c.stop()
	return first
}

// Wait waits for all requests and goroutines. Call it after Stop.
func (c *Life) Wait() { c.running.Wait() }

// Stopped reports whether Stop has been called.
func (c *Life) Stopped() bool { return c.Stopping.Err() != nil }

// Faults returns what is wrong with the settings of the store.
func (c *Core) Faults() []Fault { return c.Checks.Faults() }

// Commit implements simba.Committer. A change is durable when the store has answered, so there is
// nothing to wait for.
func (c *Core) Commit(seq simba.Seq) error {
	if seq != 0 && c.Stopped() {
		return simba.ErrStopped
	}
	return nil
}

// within runs a step with a time limit that also ends on Stop.
func (c *Core) within(ctx context.Context, limit time.Duration, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(c.Stopping, cancel)()
	return step(ctx)
}

// Away returns the error of requests while the store is known to be away, otherwise nil.
func (c *Core) Away() error {
	if away := c.away.Load(); away != nil {
		return away
	}
	return nil
}

// Probe finds out in the background whether the store is away, after a request has failed. The store is
// away if two pings in a row fail. It is back when a ping succeeds; then Probe calls back. A ping that is
// refused is an answer.
func (c *Core) Probe(timeout time.Duration, ping func(context.Context) error, back func()) {
	if c.probing.Swap(true) {
		return
	}
	c.Go(func() {
		defer c.probing.Store(false)
		for failed := 1; ; failed++ {
			err := c.within(c.Stopping, min(timeout, refreshTimeout), ping)
			switch {
			case c.Stopped():
				return
			case err == nil, isRefusal(err), isNotDone(err):
				if c.away.Swap(nil) != nil {
					back()
				}
				return
			case failed > 1:
				c.away.Store(&simba.UnavailableError{Engine: c.name, Err: err})
			}
			Sleep(c.Stopping, retryPause, nil)
		}
	})
}

// Count counts events that a request of this server has caused.
func (c *Core) Count(events ...simba.Event) {
	for _, e := range events {
		switch e.Kind {
		case simba.EventAcquired:
			c.Counts.Acquired.Add(1)
			if e.Reason == reasonHandoff {
				c.Counts.Handoffs.Add(1)
			}
		case simba.EventReleased:
			c.Counts.Released.Add(1)
		case simba.EventExpired:
			c.Counts.Expired.Add(1)
		case simba.EventBroken:
			c.Counts.Broken.Add(1)
		}
	}
}

// SawToken notes a token of any tenure, for Stats.
func (c *Core) SawToken(token uint64) {
	for last := c.token.Load(); token > last && !c.token.CompareAndSwap(last, token); last = c.token.Load() {
	}
}

// Stats implements simba.Backend. Held, Mutexes and Polling are -1, since only the store knows
// them.
func (c *Core) Stats() simba.Stats {
	return simba.Stats{
		Held: -1, Mutexes: -1, Polling: -1,
		Blocked:  int64(c.Waiters.Len()),
		Acquired: c.Counts.Acquired.Load(), Renewed: c.Counts.Renewed.Load(),
		Released: c.Counts.Released.Load(), Expired: c.Counts.Expired.Load(),
		Broken: c.Counts.Broken.Load(), Handoffs: c.Counts.Handoffs.Load(),
		TenureLengths: c.Events.TenureLengths(),
		Seq:           c.Events.Seq(), Token: c.token.Load(),
	}
}

// History implements simba.Backend. It returns the events that this server caused or observed. It
// waits for the events that the log holds back.
func (c *Core) History(ctx context.Context, r simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
	if c.Stopped() {
		return nil, 0, simba.ErrStopped
	}
	if err := c.Events.Await(ctx, r.Mutex); err != nil {
		return nil, 0, &simba.UnavailableError{Engine: c.name, Err: err}
	}
	return c.Events.Find(r), 0, nil
}
