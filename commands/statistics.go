package commands

import (
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
)

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
