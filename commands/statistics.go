package commands

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/script"
)

// statistics are the figures of commands for INFO and the metrics.
type statistics struct {
	errors   errorTally
	denials  [denialReasons]atomic.Uint64
	acquires results // of SIMBA.ACQUIRE
	guards   results // of SIMBA.GUARD
	waited   waits
	sessions atomic.Int64 // connections that have bound a lease by SESSION
}

// tally counts the calls of one command. All connections add to it without locks.
type tally struct {
	durations               // of all calls
	rejected  atomic.Uint64 // refused before they ran: arity, NOAUTH, ...
	failed    atomic.Uint64 // ran and replied with an error
	succeeded atomic.Uint64 // the other calls; calls() - failed could decrease from read to read
}

func (t *tally) add(took time.Duration, failed bool) {
	t.durations.add(took)
	if failed {
		t.failed.Add(1)
	} else {
		t.succeeded.Add(1)
	}
}

// durations is simba.Durations for concurrent use.
type durations struct {
	buckets [simba.DurationBuckets]atomic.Uint64
	nanos   atomic.Int64
}

func (d *durations) add(took time.Duration) {
	d.buckets[simba.DurationBucket(took)].Add(1)
	d.nanos.Add(int64(took))
}

func (d *durations) calls() uint64 {
	r := d.read()
	return r.Count()
}

func (d *durations) read() (r simba.Durations) {
	for i := range d.buckets {
		r.Buckets[i] = d.buckets[i].Load()
	}
	r.Micros = uint64(d.nanos.Load()) / 1000
	return r
}

// waits is simba.Durations for concurrent use. Few requests end a wait at a time. They add up
// microseconds, because the sum of long waits could overflow an int64 of nanoseconds.
type waits struct {
	mu    sync.Mutex
	total simba.Durations
}

func (w *waits) add(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total.Add(took)
}

func (w *waits) read() simba.Durations {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// The limits for codes that scripts choose. Codes beyond the limits are counted together, as in
// Redis.
const (
	maxErrorCodes   = 128
	maxErrorCode    = 64 // bytes
	otherErrorCodes = "ERRORSTATS_OVERFLOW"
)

type errorTally struct {
	mu    sync.Mutex
	total uint64
	codes map[string]uint64 // counts by code; scripts add codes until it has maxErrorCodes
}

func (t *errorTally) add(err error) {
	code, _, _ := strings.Cut(wireText(err), " ")
	scripted := errors.As(err, new(script.Error))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.codes == nil {
		t.codes = make(map[string]uint64)
	}
	_, known := t.codes[code]
	if scripted && !known && (len(t.codes) >= maxErrorCodes || len(code) > maxErrorCode) {
		code = otherErrorCodes
	}
	t.codes[strings.Clone(code)]++ // the code shares the memory of a text that may be long
	t.total++
}

func (t *errorTally) sum() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

func (t *errorTally) byCode() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.codes)
}

// results counts requests by the status of their reply. The zero Status stands for an error.
type results [simba.StatusWaiting]atomic.Uint64

var (
	acquireResults = []simba.Status{simba.StatusAcquired, simba.StatusRenewed, simba.StatusQueued, simba.StatusBusy, simba.StatusTimeout, 0}
	guardResults   = []simba.Status{simba.StatusRenewed, simba.StatusLost, 0}
)

func (r *results) add(status simba.Status) { r[status].Add(1) }

func (r *results) read(statuses []simba.Status) (counts []Count) {
	for _, status := range statuses {
		name := status.String()
		if status == 0 {
			name = "error"
		}
		counts = append(counts, Count{name, r[status].Load()})
	}
	return counts
}

// Count is a number of requests or replies with one result.
type Count struct {
	Name string
	N    uint64
}
