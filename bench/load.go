package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// contender acquires and releases one mutex. Only close is safe for concurrent use: it ends a
// waiting acquire with an error.
type contender interface {
	acquire() error // returns when the contender owns the mutex
	release() error
	close()
}

// connector connects a contender that wants the mutex. hot says that other contenders want it too.
type connector func(mutex, id string, hot bool) (contender, error)

// load is a number of clients that repeatedly acquire and release a mutex.
type load struct {
	clients int
	hot     bool // whether all clients want the same mutex; false: each its own
}

func (l load) String() string {
	what := "a mutex each"
	if l.hot {
		what = "one mutex for all"
	}
	return clients(l.clients) + ", " + what
}

// figures are the results of a load. A tenure is one acquire with its release.
type figures struct {
	tenures  int64               // number of measured tenures
	rate     float64             // tenures a second
	took     simbatest.Latencies // of each tenure, until the reply to its release
	fairness float64             // Jain's index of the clients' tenures; 1 = equal shares
	spent    spent               // the processor time of all tenures
}

// perTenure divides a processor time by the number of tenures. The result is in µs.
func (f *figures) perTenure(t time.Duration) float64 {
	return float64(t.Nanoseconds()) / 1000 / float64(f.tenures)
}

const warmUp = 300 * time.Millisecond

// patience is how long a server may take to reply. Tests shorten it.
var patience = time.Minute

// lifetime is how long a contender may run. Then its requests fail.
func lifetime() time.Duration { return patience + warmUp + *during }

var runs atomic.Int64 // counts the loads, so that each gets new mutexes

// run runs a load on a subject. After a warm-up, it measures for the time during.
func (s *site) run(l load, during time.Duration) (*figures, error) {
	run := runs.Add(1)
	var phase atomic.Int32
	var workers []*worker
	closeAll := func() {
		for _, w := range workers {
			w.c.close()
		}
	}
	for i := range l.clients {
		m := i
		if l.hot {
			m = 0
		}
		c, err := s.connect(fmt.Sprintf("bench-%d-%d", run, m), fmt.Sprintf("c%d", i), l.hot)
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("client %d: %w", i, err)
		}
		workers = append(workers, &worker{c: c, id: i, phase: &phase})
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
	closeAll()
	all.Wait()
	f, sumErr := sum(workers, took)
	if err := errors.Join(err, afterErr, sumErr); err != nil {
		return nil, err
	}
	f.spent = after.since(before)
	return f, nil
}

const (
	warming int32 = iota
	measuring
	over
)

type worker struct {
	c     contender
	id    int
	phase *atomic.Int32
	took  simbatest.Latencies // of each measured tenure
	err   error
}

func (w *worker) work() {
	for w.err == nil && w.phase.Load() != over {
		began := time.Now()
		if w.err = w.c.acquire(); w.err == nil {
			w.err = w.c.release()
		}
		if w.err == nil && w.phase.Load() == measuring {
			w.took = append(w.took, time.Since(began))
		}
	}
	if w.phase.Load() == over {
		w.err = nil // run has closed the connection
	}
}

func sum(workers []*worker, took time.Duration) (*figures, error) {
	f := new(figures)
	var squares float64
	for _, w := range workers {
		if w.err != nil {
			return nil, fmt.Errorf("client %d: %w", w.id, w.err)
		}
		n := int64(len(w.took))
		f.tenures += n
		f.took = append(f.took, w.took...)
		squares += float64(n) * float64(n)
	}
	if f.tenures == 0 {
		return nil, errors.New("no client got a mutex and released it")
	}
	total := float64(f.tenures)
	f.rate = total / took.Seconds()
	f.fairness = total * total / (float64(len(workers)) * squares)
	return f, nil
}
