package script

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// stepsBetweenChecks is how often a script is looked at. A step is an instruction, or
	// about as much work inside a library function.
	stepsBetweenChecks = 256
	// timeBetweenChecks is how long it may go on without a look at the heap.
	timeBetweenChecks = int64(time.Millisecond)
)

const (
	errKilled Error = "Script killed by user with SCRIPT KILL..."
	errMemory Error = "out of memory"
)

// meter ends a script that is killed, whose caller is gone or that takes too much memory. It
// works without a goroutine: the virtual machine asks a context before each instruction
// whether it is done, and the meter is that context.
type meter struct {
	left    int   // steps until the next check
	stopped error // why the script is to end; nil = it is not

	context.Context // of the caller; the meter overrides Done and Err
	yieldCPU        func()
	started         int64
	killed          *atomic.Int64 // the start of the run that is to be ended
	clock           func() int64
	checked         int64 // when

	memory  int64 // by how much the heap may grow
	weighed bool
	live    int64 // bytes that the collector had found alive at the first check
	objects int64 // bytes of all objects, garbage too, from where on growth counts
	samples [2]metrics.Sample
}

// never is what a channel of a script that may go on looks like to the virtual machine, and
// done what that of one that is to end.
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

// Done is called before each instruction.
func (m *meter) Done() <-chan struct{} {
	m.left--
	if m.left > 0 {
		return never
	}
	if m.check() != nil {
		return done
	}
	return never
}

// Err is why Done is closed.
func (m *meter) Err() error { return m.stopped }

// charge counts steps that a library function takes, and returns why the script is to end, if so.
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
		m.left = 0 // it does not go on because it has caught the error
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

// weigh asks the collector what is alive only if the heap has grown, since the garbage of
// other requests is there too.
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
