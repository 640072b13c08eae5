package main

import (
	"errors"
	"fmt"
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

// connector makes the contender of a load that wants a mutex by an id. Of a hot mutex others
// want it too.
type connector func(mutex, id string, hot bool) (contender, error)

// load is how many clients take a mutex and give it back, again and again.
type load struct {
	clients int
	hot     bool // one mutex for all, not one for each
}

// figures are what a load came to.
type figures struct {
	tenures   int64   // while it was measured
	rate      float64 // tenures a second
	fairness  float64 // Jain's index of the clients' tenures: 1 = all had as many
	intrusion int64   // how often two owned a mutex: 0
	spent     spent   // by all of them
}

// perTenure returns the share of one tenure in processor time, in µs.
func (f *figures) perTenure(t time.Duration) float64 {
	return float64(t.Nanoseconds()) / 1000 / float64(f.tenures)
}

const warmUp = 300 * time.Millisecond

var runs atomic.Int64 // numbers the loads, so that no mutex has a past

// rig is a mutex as the contenders see it: who owns it by their own view.
type rig struct{ owner atomic.Int64 }

// run has a load run on a subject for that long, after a warm-up.
func (s *site) run(l load, during time.Duration) (*figures, error) {
	run := runs.Add(1)
	workers := make([]*worker, l.clients)
	rigs := make([]rig, l.clients)
	var phase atomic.Int32
	for i := range workers {
		m := i
		if l.hot {
			m = 0
		}
		c, err := s.connect(fmt.Sprintf("bench-%d-%d", run, m), fmt.Sprintf("c%d", i), l.hot)
		if err != nil {
			for _, w := range workers[:i] {
				w.c.close()
			}
			return nil, fmt.Errorf("client %d: %w", i, err)
		}
		workers[i] = &worker{c: c, id: int64(i + 1), rig: &rigs[m], phase: &phase}
	}
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(w.work)
	}
	time.Sleep(warmUp)
	before, err := s.processes.spent()
	phase.Store(measuring)
	began := time.Now()
	time.Sleep(during)
	took := time.Since(began)
	phase.Store(over)
	after, afterErr := s.processes.spent()
	for _, w := range workers {
		w.c.close()
	}
	all.Wait()
	f, sumErr := sum(workers, took)
	if err := errors.Join(err, afterErr, sumErr); err != nil {
		return nil, err
	}
	f.spent = after.since(before)
	return f, nil
}

// The phases of a load.
const (
	warming int32 = iota
	measuring
	over
)

// worker is one client of a load.
type worker struct {
	c         contender
	id        int64
	rig       *rig
	phase     *atomic.Int32
	tenures   int64 // while measuring
	intrusion int64
	err       error
}

func (w *worker) work() {
	for w.err == nil && w.phase.Load() != over {
		if w.err = w.c.acquire(); w.err == nil {
			w.err = w.tenure()
		}
		if w.err == nil && w.phase.Load() == measuring {
			w.tenures++
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
	var squares float64
	for _, w := range workers {
		if w.err != nil {
			return nil, fmt.Errorf("client %d: %w", w.id, w.err)
		}
		f.tenures += w.tenures
		f.intrusion += w.intrusion
		squares += float64(w.tenures) * float64(w.tenures)
	}
	if f.tenures == 0 {
		return nil, errors.New("nobody got anything")
	}
	total := float64(f.tenures)
	f.rate = total / took.Seconds()
	f.fairness = total * total / (float64(len(workers)) * squares)
	return f, nil
}
