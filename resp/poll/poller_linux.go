package poll

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// many is how many tasks of a round are worth to wake another processor for.
const many = 4

// events of a socket, each told once: when there is something new.
const events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

// Poller serves many connections by few goroutines. One goes in rounds: it asks the kernel which
// sockets have something new. It runs the tasks of these and of those that were signaled, and behind
// them a few of those that have given way. If there are many it gives some to helpers that have
// nothing to do; there is one for each other processor. Another goroutine runs the line: the tasks
// that wait for the same thing, in the order in which they line up. The first one waits, and the
// others find it done.
//
// The epoll instance is a file that Go's own poller watches. So a round that finds nothing blocks no
// thread, and begins again as soon as there is something.
type Poller struct {
	epoll *os.File
	raw   syscall.RawConn
	found [256]unix.EpollEvent
	ended sync.WaitGroup // of its goroutines

	greedy int // of those who wait again: so many are run in a round, that a processor is left for the others

	mu       sync.Mutex       // protects this group
	socks    map[uint64]*Conn // not by descriptor: what is told of one that was closed is not for the next with its number
	lastID   uint64
	queue    []*task // to be run in the next round
	again    []*task // who had a turn and wants another, or was elsewhere: run behind those, few in a round
	passes   []*task // of those that compute on goroutines of their own: a round lets one of them go on
	sleeping bool    // the poller waits for the kernel, and must be woken for the queue
	line     []*task // of those that wait for one thing
	closed   bool

	lined chan struct{} // there is a line
	help  chan []*task  // tasks of a round, for whoever has nothing to do
}

func New() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // makes os.NewFile give it to Go's poller
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &Poller{
		epoll: os.NewFile(uintptr(fd), "epoll"), greedy: max(1, runtime.GOMAXPROCS(0)-1),
		socks: make(map[uint64]*Conn), lined: make(chan struct{}, 1), help: make(chan []*task),
	}
	if p.raw, err = p.epoll.SyscallConn(); err != nil {
		p.epoll.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := p.epoll.SetReadDeadline(time.Time{}); err != nil { // Go's poller has not taken it
		p.epoll.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p.ended.Go(p.run)
	p.ended.Go(p.runLine)
	for range runtime.GOMAXPROCS(0) - 1 {
		p.ended.Go(p.helpOut)
	}
	return p, nil
}

// Close ends the poller, whose tasks have all ended.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.lined)
	p.wake()
	p.ended.Wait()
	p.epoll.Close()
}

// Adopt makes the socket of nc one of the poller's, and closes nc; on an error nc is as it was.
func (p *Poller) Adopt(nc *net.TCPConn) (*Conn, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if cerr := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	s := newConn(p, fd, nc)
	if err := p.watch(s); err != nil {
		p.forget(s)
		unix.Close(fd)
		return nil, err
	}
	nc.Close() // or Go's poller would go on watching it
	return s, nil
}

// watch begins to tell s what is new.
func (p *Poller) watch(s *Conn) error {
	p.mu.Lock()
	p.lastID++
	s.id = p.lastID
	p.socks[s.id] = s
	p.mu.Unlock()
	e := unix.EpollEvent{Events: events, Fd: int32(s.id), Pad: int32(s.id >> 32)} // 64 bits that are the caller's own
	var err error
	if cerr := p.raw.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, s.fd, &e) }); cerr != nil {
		return cerr
	}
	return err
}

// forget is called when s is closed.
func (p *Poller) forget(s *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.socks, s.id)
}

// enqueue has t run in the next round; or, if it has just had a turn, or was elsewhere, in one of the next, behind those who have
// not. Any goroutine may call it.
func (p *Poller) enqueue(t *task, behind bool) {
	p.mu.Lock()
	if behind {
		p.again = append(p.again, t)
	} else {
		p.queue = append(p.queue, t)
	}
	p.mu.Unlock()
	p.Look()
}

// pass has t go on away when a round lets it. So few of those that compute run at a time.
func (p *Poller) pass(t *task) {
	p.mu.Lock()
	p.passes = append(p.passes, t)
	p.mu.Unlock()
	p.Look()
}

// Look has the poller ask the kernel what is new. While goroutines are ready to run, Go would
// look at its own poller only after 10 ms.
func (p *Poller) Look() {
	p.mu.Lock()
	sleeping := p.sleeping
	p.sleeping = false
	p.mu.Unlock()
	if sleeping {
		p.wake()
	}
}

// wake makes sleep return, this time or the next.
func (p *Poller) wake() { _ = p.epoll.SetReadDeadline(past) } // fails on a closed file only

// lineUp has t run behind the others of the line.
func (p *Poller) lineUp(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = append(p.line, t)
	select {
	case p.lined <- struct{}{}:
	default:
	}
}

func (p *Poller) runLine() {
	var spare []*task
	for range p.lined {
		p.mu.Lock()
		tasks := p.line
		p.line = spare[:0]
		p.mu.Unlock()
		for _, t := range tasks {
			t.goOn(lined)
		}
		clear(tasks)
		spare = tasks
	}
}

func (p *Poller) run() {
	var spare []*task
	for {
		n := p.poll()
		if n == 0 && p.fallsAsleep() {
			n = p.sleep()
		}
		tasks, again, ok := p.round(p.found[:n], spare)
		if !ok {
			close(p.help)
			return
		}
		first := len(tasks) - again
		mine, hungry := p.share(tasks[:first]), p.offer(tasks[first:])
		goOnAll(mine)
		goOnAll(hungry)
		if spare = nil; len(mine)+len(hungry) == len(tasks) {
			clear(tasks)
			spare = tasks
		}
		if p.letPass() || len(tasks) > 0 {
			runtime.Gosched() // to whoever was set going: Go would look at that only after 10 ms
		}
	}
}

// share gives helpers that have nothing to do a part of many tasks, and returns the rest.
func (p *Poller) share(tasks []*task) []*task {
	for len(tasks) >= many {
		half := len(tasks) / 2
		select {
		case p.help <- tasks[half:]:
			tasks = tasks[:half:half]
		default:
			return tasks
		}
	}
	return tasks
}

// offer gives helpers that have nothing to do a task each, of those that wait again, and returns the rest: one at least.
func (p *Poller) offer(tasks []*task) []*task {
	for n := len(tasks) - 1; n > 0; n-- {
		select {
		case p.help <- tasks[n:]:
			tasks = tasks[:n:n]
		default:
			return tasks
		}
	}
	return tasks
}

func (p *Poller) helpOut() {
	for tasks := range p.help {
		goOnAll(tasks)
	}
}

func goOnAll(tasks []*task) {
	for _, t := range tasks {
		t.goOn(looped)
	}
}

// fallsAsleep reports whether there is nothing in the queue: then whoever puts something there wakes the poller.
func (p *Poller) fallsAsleep() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sleeping = len(p.queue) == 0 && len(p.again) == 0 && len(p.passes) == 0 && !p.closed
	return p.sleeping
}

// round tells the sockets what is new and returns the tasks to be run, and how many at their end waited again; ok is false
// if there will be none any more. What it returned before is used for the next.
func (p *Poller) round(found []unix.EpollEvent, spare []*task) (tasks []*task, again int, ok bool) {
	p.mu.Lock()
	p.sleeping = false
	for i := range found {
		s := p.socks[uint64(uint32(found[i].Fd))|uint64(found[i].Pad)<<32]
		if s != nil && s.note(found[i].Events) && s.task.claim() {
			p.queue = append(p.queue, s.task)
		}
	}
	again = min(len(p.again), p.greedy)
	tasks, ok = append(p.queue, p.again[:again]...), !p.closed
	p.again = slices.Delete(p.again, 0, again)
	p.queue = spare[:0]
	p.mu.Unlock()
	return tasks, again, ok
}

// letPass has one of those go on that compute on goroutines of their own. It reports whether there is one.
func (p *Poller) letPass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.passes) == 0 {
		return false
	}
	go p.passes[0].goOn(away)
	p.passes = slices.Delete(p.passes, 0, 1)
	return true
}

// poll asks the kernel what is new, and does not wait for it.
func (p *Poller) poll() (n int) {
	_ = p.raw.Control(func(fd uintptr) { n = p.pollRaw(fd) })
	return n
}

// past is a deadline that makes sleep return at once.
var past = time.Unix(1, 0)

// sleep waits until there is something new, or until it is woken.
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

// pollRaw does not tell Go's scheduler of a system call that never blocks, and so is never interrupted.
func (p *Poller) pollRaw(fd uintptr) int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&p.found[0])), uintptr(len(p.found)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
