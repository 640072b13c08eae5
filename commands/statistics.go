package commands

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
)

// ratePeriod is the shortest time between two samples for the instantaneous figures of INFO.
const ratePeriod = time.Second

// rates has the figures per second of INFO. The first command after a ratePeriod takes a sample.
type rates struct {
	due atomic.Int64 // time of the next sample, in nanoseconds since start

	mu   sync.Mutex // protects the rest
	last totals
	rate rate
}

type totals struct {
	at                time.Duration
	commands, in, out int64
}

// rate has figures per second.
type rate struct{ commands, in, out float64 }

// tick takes a sample if the last sample is at least a ratePeriod old.
func (r *rates) tick(x *Commands, now time.Duration) {
	due := r.due.Load()
	if int64(now) < due || !r.due.CompareAndSwap(due, int64(now+ratePeriod)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := x.totals(now)
	r.rate = t.since(r.last)
	r.last = t
}

// read returns the rates between the last two samples. If the last sample is old, read takes one
// first, so the rates of an idle server fall to zero.
func (r *rates) read(x *Commands, now time.Duration) rate {
	r.tick(x, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rate
}

func (r *rates) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.rate = totals{}, rate{}
}

// since returns the rates between two samples. They are 0 if earlier is the zero value.
func (t totals) since(earlier totals) rate {
	seconds := (t.at - earlier.at).Seconds()
	if earlier.at == 0 || seconds <= 0 {
		return rate{}
	}
	return rate{
		commands: float64(t.commands-earlier.commands) / seconds,
		in:       float64(t.in-earlier.in) / seconds,
		out:      float64(t.out-earlier.out) / seconds,
	}
}

func (x *Commands) totals(now time.Duration) totals {
	s := x.server.Stats()
	return totals{at: now, commands: int64(x.commandsProcessed()), in: s.BytesIn, out: s.BytesOut}
}

func (x *Commands) commandsProcessed() (n uint64) {
	for e := range x.table.all() {
		n += e.tally.calls()
	}
	return n
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

func (t *tally) reset() {
	t.durations.reset()
	t.rejected.Store(0)
	t.failed.Store(0)
	t.succeeded.Store(0)
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

func (d *durations) calls() (n uint64) {
	for i := range d.buckets {
		n += d.buckets[i].Load()
	}
	return n
}

func (d *durations) read() (r simba.Durations) {
	for i := range d.buckets {
		r.Buckets[i] = d.buckets[i].Load()
	}
	r.Micros = uint64(d.nanos.Load()) / 1000
	return r
}

func (d *durations) reset() {
	for i := range d.buckets {
		d.buckets[i].Store(0)
	}
	d.nanos.Store(0)
}

// waits is simba.Durations for concurrent use. It counts microseconds, because the sum of long
// waits could overflow an int64 of nanoseconds.
type waits struct {
	buckets [simba.DurationBuckets]atomic.Uint64
	micros  atomic.Uint64
}

func (w *waits) add(took time.Duration) {
	w.buckets[simba.DurationBucket(took)].Add(1)
	w.micros.Add(uint64(max(took, 0).Microseconds()))
}

func (w *waits) read() (r simba.Durations) {
	for i := range w.buckets {
		r.Buckets[i] = w.buckets[i].Load()
	}
	r.Micros = w.micros.Load()
	return r
}

func (w *waits) reset() {
	for i := range w.buckets {
		w.buckets[i].Store(0)
	}
	w.micros.Store(0)
}
