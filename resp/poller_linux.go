package resp

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

// pushesAtOnce is to how many connections a pusher writes before it gives way.
const pushesAtOnce = 16

// events of a socket, each told once: when there is something new.
const events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

// poller serves many connections by few goroutines. One goes in rounds: it asks the kernel which sockets have
// something new, and runs the tasks of these and of whoever was signaled, and behind them a few of those that have had a
// turn and want another. If there are many it gives some to helpers, one for each other processor, that have nothing to do. Another one, the settler, runs those
// tasks that wait for what they changed to be durable, in the order in which they line up: the first one waits,
// and the others find it done.
//
// The poller's own epoll instance is a file that Go's poller watches. So a round that finds nothing
// blocks no thread, and begins again as soon as there is something.
type poller struct {
	epoll *os.File
	raw   syscall.RawConn
	found [256]unix.EpollEvent
	ended sync.WaitGroup // of its goroutines

	greedy int // of those who wait again: so many are run in a round, that a processor is left for the others

	mu       sync.Mutex       // protects this group
	socks    map[uint64]*sock // not by descriptor: what is told of one that was closed is not for the next with its number
	lastID   uint64
	queue    []*task // to be run in the next round
	again    []*task // who had a turn and wants another, or was elsewhere: run behind those, few in a round
	sleeping bool    // the poller waits for the kernel, and must be woken for the queue
	line     []*task // of the settler
	closed   bool

	pushes   []*Conn       // of the pushers: who is to be sent what is queued for it
	caughtUp chan struct{} // closed when only a few are left; nil = nobody waits for that

	settle chan struct{} // there is a line
	help   chan []*task  // tasks of a round, for whoever has nothing to do
	pushed chan struct{} // there are pushes
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // makes os.NewFile give it to Go's poller
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &poller{
		epoll: os.NewFile(uintptr(fd), "epoll"), greedy: max(1, runtime.GOMAXPROCS(0)-1),
		socks: make(map[uint64]*sock), settle: make(chan struct{}, 1), help: make(chan []*task), pushed: make(chan struct{}, 1),
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
	p.ended.Go(p.settleAll)
	for range p.greedy {
		p.ended.Go(p.pushAll)
	}
	for range runtime.GOMAXPROCS(0) - 1 {
		p.ended.Go(p.helpOut)
	}
	return p, nil
}

// close ends the poller, whose tasks have all ended.
func (p *poller) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.settle)
	close(p.pushed)
	p.wake()
	p.ended.Wait()
	p.epoll.Close()
}

// adopt makes the socket of nc one of the poller's, and closes nc; on an error nc is as it was.
func (p *poller) adopt(nc *net.TCPConn) (*sock, error) {
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
	s := newSock(p, fd, nc)
	if err := p.watch(s); err != nil {
		p.forget(s)
		unix.Close(fd)
		return nil, err
	}
	nc.Close() // or Go's poller would go on watching it
	return s, nil
}

// watch begins to tell s what is new.
func (p *poller) watch(s *sock) error {
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
func (p *poller) forget(s *sock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.socks, s.id)
}

// enqueue has t run in the next round; or, if it has just had a turn, or was elsewhere, in one of the next, behind those who have
// not. Any goroutine may call it.
func (p *poller) enqueue(t *task, behind bool) {
	p.mu.Lock()
	if behind {
		p.again = append(p.again, t)
	} else {
		p.queue = append(p.queue, t)
	}
	p.mu.Unlock()
	p.look()
}

// look has the poller ask the kernel what is new. While goroutines are ready to run, Go would
// look at its own poller only after 10 ms.
func (p *poller) look() {
	p.mu.Lock()
	sleeping := p.sleeping
	p.sleeping = false
	p.mu.Unlock()
	if sleeping {
		p.wake()
	}
}

// wake makes sleep return, this time or the next.
func (p *poller) wake() { _ = p.epoll.SetReadDeadline(past) } // fails on a closed file only

// lineUp has the settler run t.
func (p *poller) lineUp(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = append(p.line, t)
	select {
	case p.settle <- struct{}{}:
	default:
	}
}

func (p *poller) settleAll() {
	var spare []*task
	for range p.settle {
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

func (p *poller) run() {
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
		if len(tasks) > 0 {
			runtime.Gosched() // to whoever was set going: Go would look at that only after 10 ms
		}
	}
}

// push has c.pushSome called, or reports that it is too late for that.
func (p *poller) push(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.pushes = append(p.pushes, c)
	p.signalPushers()
	return true
}

// signalPushers wakes a pusher that has nothing to do, if there is one. The caller holds mu, so that the channel is open.
func (p *poller) signalPushers() {
	select {
	case p.pushed <- struct{}{}:
	default:
	}
}

// pushAll is a pusher. It goes from one connection to the next, so that what is published meanwhile is sent with
// the same write, and gives way to others now and then.
func (p *poller) pushAll() {
	var conns []*Conn
	var scratch []byte
	for range p.pushed {
		for {
			if conns = p.takePushes(conns[:0]); len(conns) == 0 {
				break
			}
			for _, c := range conns {
				if c.pushSome(&scratch) && !p.push(c) {
					go c.pushAll()
				}
			}
			clear(conns)
			runtime.Gosched()
		}
	}
}

// takePushes adds some of those who wait for a pusher to conns.
func (p *poller) takePushes(conns []*Conn) []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.pushes), pushesAtOnce)
	conns = append(conns, p.pushes[:n]...)
	clear(p.pushes[:n])
	if p.caughtUp != nil && len(p.pushes)-n <= pushesAtOnce {
		close(p.caughtUp)
		p.caughtUp = nil
	}
	if n == len(p.pushes) {
		p.pushes = p.pushes[:0]
		return conns
	}
	p.pushes = p.pushes[n:]
	if !p.closed {
		p.signalPushers() // another one may help
	}
	return conns
}

// awaitPushes returns when the pushers have only a few connections left to send to, or after publishWait.
func (p *poller) awaitPushes() {
	p.mu.Lock()
	if len(p.pushes) <= pushesAtOnce {
		p.mu.Unlock()
		return
	}
	if p.caughtUp == nil {
		p.caughtUp = make(chan struct{})
	}
	caughtUp := p.caughtUp
	p.mu.Unlock()
	timer := time.NewTimer(publishWait)
	defer timer.Stop()
	select {
	case <-caughtUp:
	case <-timer.C:
	}
}

// share gives helpers that have nothing to do a part of many tasks, and returns the rest.
func (p *poller) share(tasks []*task) []*task {
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
func (p *poller) offer(tasks []*task) []*task {
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

func (p *poller) helpOut() {
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
func (p *poller) fallsAsleep() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sleeping = len(p.queue) == 0 && len(p.again) == 0 && !p.closed
	return p.sleeping
}

// round tells the sockets what is new and returns the tasks to be run, and how many at their end waited again; ok is false
// if there will be none any more. What it returned before is used for the next.
func (p *poller) round(found []unix.EpollEvent, spare []*task) (tasks []*task, again int, ok bool) {
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

// poll asks the kernel what is new, and does not wait for it.
func (p *poller) poll() (n int) {
	_ = p.raw.Control(func(fd uintptr) { n = p.pollRaw(fd) })
	return n
}

// sleep waits until there is something new, or until it is woken.
func (p *poller) sleep() (n int) {
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
func (p *poller) pollRaw(fd uintptr) int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&p.found[0])), uintptr(len(p.found)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
