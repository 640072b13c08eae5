package poll

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// minShared is the smallest number of ready tasks that the poller divides with a helper.
const minShared = 4

// events are the epoll events to watch for on a socket, edge-triggered.
const events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

// Poller serves many connections by few goroutines. A task is the coroutine of a connection. The
// Poller's main goroutine works in rounds. In each round it runs the tasks of the sockets with
// events and the signaled tasks, and then a few of the tasks that yielded. There is a helper
// goroutine for each other processor. If a round has many tasks, idle helpers run some of them. One
// more goroutine runs the ordered tasks (see Conn.DetachInOrder), first come, first served. All
// ordered tasks wait for the same commits. When the first one need not wait any more, the others
// mostly need not either.
//
// Go's own poller watches the epoll instance like a file, so a Poller that waits for events blocks
// no thread.
type Poller struct {
	epoll *os.File
	raw   syscall.RawConn
	found [256]unix.EpollEvent
	ended sync.WaitGroup // the Poller's goroutines

	// maxReturning is the largest number of tasks in the list p.returning that one round runs. If
	// there are several processors, it leaves one free for other tasks.
	maxReturning int

	mu sync.Mutex // protects this group
	// conns are keyed by id, not by descriptor. So a late event of a closed socket does not reach a
	// new socket with the same descriptor.
	conns  map[uint64]*Conn
	lastID uint64
	queue  []*task // tasks for the next round
	// returning has the tasks that yielded in a round, and those that were detached until now. Each
	// round runs a few of them, after the other tasks.
	returning []*task
	paused    []*task // detached tasks that yielded; each round resumes one
	ordered   []*task // tasks for runOrdered
	sleeping  bool    // the main goroutine waits in sleep, or is about to
	closed    bool

	orderedReady chan struct{} // receives a value when ordered is not empty
	helpers      chan []*task  // passes tasks of a round to an idle helper
}

// New starts a poller. Close ends it.
func New() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that os.NewFile adds it to Go's poller
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &Poller{
		epoll: os.NewFile(uintptr(fd), "epoll"), maxReturning: max(1, runtime.GOMAXPROCS(0)-1),
		conns: make(map[uint64]*Conn), orderedReady: make(chan struct{}, 1), helpers: make(chan []*task),
	}
	if p.raw, err = p.epoll.SyscallConn(); err != nil {
		p.epoll.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	// SetReadDeadline fails if Go's poller does not watch epoll.
	if err := p.epoll.SetReadDeadline(time.Time{}); err != nil {
		p.epoll.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p.ended.Go(p.run)
	p.ended.Go(p.runOrdered)
	for range runtime.GOMAXPROCS(0) - 1 {
		p.ended.Go(p.runHelper)
	}
	return p, nil
}

// Close ends the poller. All of its tasks must have ended.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.orderedReady)
	p.interrupt()
	p.ended.Wait()
	p.epoll.Close()
}

// Adopt moves the socket of nc to the poller and closes nc. On an error nc is unchanged.
func (p *Poller) Adopt(nc Socket) (*Conn, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	s := newConn(p, fd, nc)
	if err := p.watch(s); err != nil {
		p.remove(s)
		unix.Close(fd)
		return nil, err
	}
	nc.Close() // removes the socket from Go's poller
	return s, nil
}

func (p *Poller) watch(s *Conn) error {
	p.mu.Lock()
	p.lastID++
	s.id = p.lastID
	p.conns[s.id] = s
	p.mu.Unlock()
	// Fd and Pad together are 64 bits of user data.
	e := unix.EpollEvent{Events: events, Fd: int32(s.id), Pad: int32(s.id >> 32)}
	var err error
	cerr := p.raw.Control(func(epoll uintptr) {
		err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, s.fd, &e)
	})
	if cerr != nil {
		return cerr
	}
	return err
}

func (p *Poller) remove(s *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, s.id)
}

// enqueue schedules t for the next round, or for a later one if t is returning. A returning task
// has yielded in a round, or was detached until now. Any goroutine may call enqueue.
func (p *Poller) enqueue(t *task, returning bool) {
	p.mu.Lock()
	if returning {
		p.returning = append(p.returning, t)
	} else {
		p.queue = append(p.queue, t)
	}
	p.mu.Unlock()
	p.Wake()
}

// enqueuePaused schedules t to continue on a goroutine of its own. Each round resumes only one such
// task, so that few compute at a time.
func (p *Poller) enqueuePaused(t *task) {
	p.mu.Lock()
	p.paused = append(p.paused, t)
	p.mu.Unlock()
	p.Wake()
}

// Wake ends the sleep of the poller, so that it asks the kernel for events at once. Without Wake
// the sleep may end late: while goroutines are ready to run, Go checks its own poller only every
// 10 ms.
func (p *Poller) Wake() {
	p.mu.Lock()
	sleeping := p.sleeping
	p.sleeping = false
	p.mu.Unlock()
	if sleeping {
		p.interrupt()
	}
}

// interrupt ends the current or next sleep. SetReadDeadline fails only on a closed file.
func (p *Poller) interrupt() { _ = p.epoll.SetReadDeadline(past) }

func (p *Poller) enqueueOrdered(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ordered = append(p.ordered, t)
	select {
	case p.orderedReady <- struct{}{}:
	default:
	}
}

func (p *Poller) runOrdered() {
	var spare []*task
	for range p.orderedReady {
		p.mu.Lock()
		tasks := p.ordered
		p.ordered = spare[:0]
		p.mu.Unlock()
		for _, t := range tasks {
			t.run(ordered)
		}
		clear(tasks)
		spare = tasks
	}
}

func (p *Poller) run() {
	var spare []*task
	for {
		n := p.poll()
		if n == 0 && p.maySleep() {
			n = p.sleep()
		}
		tasks, last, ok := p.round(p.found[:n], spare)
		if !ok {
			close(p.helpers)
			return
		}
		first := len(tasks) - last
		ready, returning := p.shareReady(tasks[:first]), p.shareReturning(tasks[first:])
		runAll(ready)
		runAll(returning)
		if spare = nil; len(ready)+len(returning) == len(tasks) {
			clear(tasks)
			spare = tasks
		}
		if p.resumePaused() || len(tasks) > 0 {
			runtime.Gosched() // otherwise Go may run woken goroutines only after 10 ms
		}
	}
}

// shareReady gives idle helpers a part of the tasks if there are many. It returns the rest.
func (p *Poller) shareReady(tasks []*task) []*task {
	for len(tasks) >= minShared {
		half := len(tasks) / 2
		select {
		case p.helpers <- tasks[half:]:
			tasks = tasks[:half:half]
		default:
			return tasks
		}
	}
	return tasks
}

// shareReturning gives each idle helper one returning task, but keeps at least one if there is any.
// It returns the rest.
func (p *Poller) shareReturning(tasks []*task) []*task {
	for n := len(tasks) - 1; n > 0; n-- {
		select {
		case p.helpers <- tasks[n:]:
			tasks = tasks[:n:n]
		default:
			return tasks
		}
	}
	return tasks
}

func (p *Poller) runHelper() {
	for tasks := range p.helpers {
		runAll(tasks)
	}
}

func runAll(tasks []*task) {
	for _, t := range tasks {
		t.run(shared)
	}
}

// maySleep reports whether there is nothing to run. If so, it sets sleeping, so that the next
// enqueue wakes the poller.
func (p *Poller) maySleep() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sleeping = len(p.queue) == 0 && len(p.returning) == 0 && len(p.paused) == 0 && !p.closed
	return p.sleeping
}

// round records the found events and returns the tasks to run. First come the tasks of p.queue,
// then some tasks of p.returning. fromReturning is the number of the latter. ok is false if the
// poller is closed. The queue of the next round gets the memory of spare.
func (p *Poller) round(found []unix.EpollEvent, spare []*task) (tasks []*task, fromReturning int, ok bool) {
	p.mu.Lock()
	p.sleeping = false
	for i := range found {
		s := p.conns[uint64(uint32(found[i].Fd))|uint64(found[i].Pad)<<32]
		if s != nil && s.record(found[i].Events) && s.task.claim() {
			p.queue = append(p.queue, s.task)
		}
	}
	fromReturning = min(len(p.returning), p.maxReturning)
	tasks, ok = append(p.queue, p.returning[:fromReturning]...), !p.closed
	p.returning = slices.Delete(p.returning, 0, fromReturning)
	p.queue = spare[:0]
	p.mu.Unlock()
	return tasks, fromReturning, ok
}

// resumePaused resumes a paused task. It returns false if there is none.
func (p *Poller) resumePaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.paused) == 0 {
		return false
	}
	go p.paused[0].run(detached)
	p.paused = slices.Delete(p.paused, 0, 1)
	return true
}

// poll asks the kernel for events. It does not wait.
func (p *Poller) poll() (n int) {
	_ = p.raw.Control(func(fd uintptr) { n = p.pollRaw(fd) })
	return n
}

// past is a deadline that makes sleep return at once.
var past = time.Unix(1, 0)

// sleep waits for events, or until interrupt.
func (p *Poller) sleep() (n int) {
	err := p.raw.Read(func(fd uintptr) bool {
		n = p.pollRaw(fd)
		return n > 0
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = p.epoll.SetReadDeadline(time.Time{})
	}
	return n
}

// pollRaw calls epoll_pwait with a timeout of 0. The call never blocks, so Go's scheduler need not
// know of it.
func (p *Poller) pollRaw(fd uintptr) int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT,
		fd, uintptr(unsafe.Pointer(&p.found[0])), uintptr(len(p.found)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
