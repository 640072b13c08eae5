package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A contender takes one mutex and gives it back. It is for one goroutine, but for close, which
// ends an acquire that waits.
type contender interface {
	acquire() error // returns when it owns the mutex
	release() error
	close()
}

// A guarder renews too.
type guarder interface {
	contender
	guard() error
}

// connector makes the contender of a load that wants a mutex by an id. Of a hot mutex others
// want it too.
type connector func(mutex, id string, hot bool) (contender, error)

// load is how many clients do what.
type load struct {
	clients int
	hot     bool // one mutex for all, not one for each
	guard   bool // renew instead of giving back
}

// figures are what a load came to.
type figures struct {
	rate      float64       // tenures, or renewals, a second
	p50, p99  time.Duration // of what a client waits for a tenure, or a renewal
	longest   time.Duration
	mean      time.Duration
	fairness  float64 // Jain's index of the clients' tenures: 1 = all had as many
	intrusion int64   // how often two owned a mutex: 0
}

const warmUp = 300 * time.Millisecond

var runs atomic.Int64 // numbers the loads, so that no mutex has a past

// rig is a mutex as the contenders see it: who owns it by their own view.
type rig struct{ owner atomic.Int64 }

// run has a load run for that long, after a warm-up.
func run(l load, connect connector, during time.Duration) (*figures, error) {
	run := runs.Add(1)
	workers := make([]*worker, l.clients)
	rigs := make([]rig, l.clients)
	var phase atomic.Int32
	for i := range workers {
		m := i
		if l.hot {
			m = 0
		}
		c, err := connect(fmt.Sprintf("bench-%d-%d", run, m), fmt.Sprintf("c%d", i), l.hot)
		if err != nil {
			for _, w := range workers[:i] {
				w.c.close()
			}
			return nil, fmt.Errorf("client %d: %w", i, err)
		}
		workers[i] = &worker{load: l, c: c, id: int64(i + 1), rig: &rigs[m], phase: &phase}
	}
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(w.work)
	}
	<-time.After(warmUp)
	phase.Store(measuring)
	began := time.Now()
	<-time.After(during)
	took := time.Since(began)
	phase.Store(over)
	for _, w := range workers {
		w.c.close()
	}
	all.Wait()
	return sum(workers, took)
}

// The phases of a load.
const (
	warming int32 = iota
	measuring
	over
)

// worker is one client of a load.
type worker struct {
	load
	c         contender
	id        int64
	rig       *rig
	phase     *atomic.Int32
	waits     []time.Duration // while measuring
	intrusion int64
	err       error
}

func (w *worker) work() {
	if w.guard {
		w.err = w.c.acquire()
	}
	for w.err == nil && w.phase.Load() != over {
		began := time.Now()
		if w.guard {
			w.err = w.c.(guarder).guard()
		} else {
			w.err = w.c.acquire()
		}
		waited := time.Since(began)
		if w.err == nil && !w.guard {
			w.err = w.tenure()
		}
		if w.err == nil && w.phase.Load() == measuring {
			w.waits = append(w.waits, waited)
		}
	}
	if w.phase.Load() == over {
		w.err = nil // its connection was closed
	}
}

// tenure looks that nobody else owns the mutex, and gives it back.
func (w *worker) tenure() error {
	if !w.rig.owner.CompareAndSwap(0, w.id) {
		w.intrusion++
	}
	w.rig.owner.CompareAndSwap(w.id, 0)
	return w.c.release()
}

// sum makes figures of what the workers saw.
func sum(workers []*worker, took time.Duration) (*figures, error) {
	f := new(figures)
	var waits []time.Duration
	var total, squares float64
	var errs []error
	for _, w := range workers {
		waits = append(waits, w.waits...)
		n := float64(len(w.waits))
		total, squares = total+n, squares+n*n
		f.intrusion += w.intrusion
		if w.err != nil {
			errs = append(errs, fmt.Errorf("client %d: %w", w.id, w.err))
		}
	}
	if len(errs) > 0 {
		return nil, errs[0]
	}
	if len(waits) == 0 {
		return nil, errors.New("nobody got anything")
	}
	slices.Sort(waits)
	f.rate = total / took.Seconds()
	f.p50, f.p99, f.longest = waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1]
	for _, d := range waits {
		f.mean += d
	}
	f.mean /= time.Duration(len(waits))
	f.fairness = total * total / (float64(len(workers)) * squares)
	return f, nil
}
