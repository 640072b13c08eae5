package monitor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Timed is a Backend that measures the requests to a store, and logs the store's outages. It does
// not measure how long tickets wait. Safe for concurrent use.
type Timed struct {
	simba.Backend

	outage outage

	mu    sync.Mutex // guards stats
	stats RequestStats
}

// RequestStats are the figures of requests to a store.
type RequestStats struct {
	Durations simba.Durations
	Failed    uint64 // no answer from the store, or a *simba.MisconfiguredError
}

// NewTimed returns a Timed that passes requests on to b.
func NewTimed(b simba.Backend, log *slog.Logger) *Timed {
	return &Timed{Backend: b, outage: outage{log: log}}
}

// RequestStats returns the figures since the start.
func (t *Timed) RequestStats() RequestStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Probes returns a Backend whose Owner serves as a health check. RequestStats does not count health
// checks, but they let an idle server notice an outage.
func (t *Timed) Probes() simba.Backend { return probes{t.Backend, &t.outage} }

type probes struct {
	simba.Backend
	outage *outage
}

// Owner implements simba.Backend.
func (p probes) Owner(ctx context.Context, mutex string) (_ simba.Tenure, _ simba.Seq, err error) {
	began := time.Now()
	defer func() { p.outage.note(began, err) }()
	return p.Backend.Owner(ctx, mutex)
}

// measure counts a request. It is deferred, so err is a pointer.
func (t *Timed) measure(began time.Time, err *error) {
	took := time.Since(began)
	t.outage.note(began, *err)
	failed := errors.As(*err, new(*simba.UnavailableError)) || errors.As(*err, new(*simba.MisconfiguredError))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Durations.Add(took)
	if failed {
		t.stats.Failed++
	}
}

// Acquire implements simba.Backend.
func (t *Timed) Acquire(ctx context.Context, r simba.AcquireRequest) (_ simba.Outcome, _ simba.Ticket, err error) {
	defer t.measure(time.Now(), &err)
	return t.Backend.Acquire(ctx, r)
}

// Guard implements simba.Backend.
func (t *Timed) Guard(ctx context.Context, r simba.GuardRequest) (_ simba.Outcome, err error) {
	defer t.measure(time.Now(), &err)
	return t.Backend.Guard(ctx, r)
}

// Release implements simba.Backend.
func (t *Timed) Release(ctx context.Context, r simba.ReleaseRequest) (_ bool, _ simba.Seq, err error) {
	defer t.measure(time.Now(), &err)
	return t.Backend.Release(ctx, r)
}

// Owner implements simba.Backend.
func (t *Timed) Owner(ctx context.Context, mutex string) (_ simba.Tenure, _ simba.Seq, err error) {
	defer t.measure(time.Now(), &err)
	return t.Backend.Owner(ctx, mutex)
}

// Queue implements simba.Backend.
func (t *Timed) Queue(ctx context.Context, mutex string, count int) (_ []simba.QueueEntry, _ simba.Seq, err error) {
	defer t.measure(time.Now(), &err)
	return t.Backend.Queue(ctx, mutex, count)
}

// Scan implements simba.Backend.
func (t *Timed) Scan(ctx context.Context, r simba.ScanRequest) (_ simba.ScanPage, _ simba.Seq, err error) {
	defer t.measure(time.Now(), &err)
	return t.Backend.Scan(ctx, r)
}

// Check implements simba.Backend.
func (t *Timed) Check(ctx context.Context, mutex string, token uint64) (_ bool, _ simba.Seq, err error) {
	defer t.measure(time.Now(), &err)
	return t.Backend.Check(ctx, mutex, token)
}

// Break implements simba.Backend.
func (t *Timed) Break(ctx context.Context, mutex, reason string) (_ bool, _ simba.Seq, err error) {
	defer t.measure(time.Now(), &err)
	return t.Backend.Break(ctx, mutex, reason)
}
