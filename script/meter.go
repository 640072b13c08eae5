package script

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// stepsBetweenChecks is the number of steps between two checks. A step is an instruction, or
	// about as much work in a library function.
	stepsBetweenChecks = 256
	// timeBetweenChecks is the time in nanoseconds between two checks of the caller, SCRIPT KILL
	// and the heap.
	timeBetweenChecks = int64(time.Millisecond)
)

const (
	errKilled Error = "Script killed by user with SCRIPT KILL..."
	errMemory Error = "out of memory"
)

// meter ends a script that SCRIPT KILL or its caller has ended, or that takes too much memory. It
// is the context that the virtual machine checks before each instruction.
type meter struct {
	left    int   // steps until the next check
	stopped error // why the script must end; nil = it goes on

	context.Context // of the caller; the meter overrides Done and Err
	yieldCPU        func()
	started         int64
	killed          *atomic.Int64 // the value of started of the run that must end
	clock           func() int64
	checked         int64 // time of the last check of the heap

	memory  int64 // allowed growth of the heap in bytes
	weighed bool  // live and objects are set
	live    int64 // bytes that were live at the last collection before the first check
	objects int64 // bytes of objects and garbage at the first check, or after a collection by weigh
	samples [2]metrics.Sample
}

// never is the Done channel of a script that may go on. done is that of a script that must end.
var (
	never chan struct{}
	done  = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
)

func newMeter(clock func() int64, memory int64, killed *atomic.Int64) *meter {
	m := &meter{clock: clock, memory: memory, killed: killed}
	m.samples[0].Name = "/memory/classes/heap/objects:bytes"
	m.samples[1].Name = "/gc/heap/live:bytes"
	return m
}

func (m *meter) begin(ctx context.Context, started int64, yieldCPU func()) {
	m.left, m.stopped = stepsBetweenChecks, nil
	m.Context, m.yieldCPU, m.started, m.checked, m.weighed = ctx, yieldCPU, started, started, false
}

// Done implements context.Context. The virtual machine calls it before each instruction.
func (m *meter) Done() <-chan struct{} {
	if m.charge(1) != nil {
		return done
	}
	return never
}

func (m *meter) Err() error { return m.stopped }

// charge counts steps of a library function. It returns an error if the script must end.
func (m *meter) charge(steps int) error {
	m.left -= steps
	if m.left > 0 {
		return nil
	}
	return m.check()
}

func (m *meter) check() error {
	if m.stopped == nil {
		m.stopped = m.examine()
	}
	m.left = stepsBetweenChecks
	if m.stopped != nil {
		m.left = 0 // a script that catches the error must not go on
	}
	return m.stopped
}

func (m *meter) examine() error {
	if !m.weighed {
		m.weighed = true
		m.objects, m.live = m.heap()
	}
	if m.yieldCPU != nil {
		m.yieldCPU()
	}
	now := m.clock()
	if now-m.checked < timeBetweenChecks {
		return nil
	}
	m.checked = now
	if err := m.Context.Err(); err != nil {
		return err
	}
	if m.killed.Load() == m.started {
		return errKilled
	}
	return m.weigh()
}

// weigh checks the growth of the heap. The growth may be garbage of other requests, so weigh runs
// the collector before it ends the script.
func (m *meter) weigh() error {
	if objects, _ := m.heap(); objects-m.objects < m.memory {
		return nil
	}
	runtime.GC()
	objects, live := m.heap()
	if live-m.live > m.memory {
		return errMemory
	}
	m.objects = objects
	return nil
}

func (m *meter) heap() (objects, live int64) {
	metrics.Read(m.samples[:])
	return int64(m.samples[0].Value.Uint64()), int64(m.samples[1].Value.Uint64())
}
