package poll

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readMost is the most that one Read returns: a turn is as long for all, whatever room they have.
const readMost = 64 << 10

// Conn is a socket that a Poller watches instead of Go's: a net.Conn whose Read has its coroutine go
// idle until there is something to read. Only the coroutine may call Read. Write is for goroutines
// that may wait; WriteNow is for the others. One goroutine at a time may write.
type Conn struct {
	fd            int
	id            uint64 // in its poller
	remote, local net.Addr
	poller        *Poller
	task          *task

	readable atomic.Bool
	ended    atomic.Bool // by the client, or by an error: reads find out which without being told
	writable chan struct{}

	deadlines sync.Mutex   // held while the read deadline is changed
	deadline  atomic.Int64 // of reads, from born; 0 = none
	timer     *time.Timer
	until     time.Time // writes
	born      time.Time

	closing sync.Once
	closed  atomic.Bool
	uses    atomic.Int64 // of fd, one of them until it is closed
}

func newConn(p *Poller, fd int, nc net.Conn) *Conn {
	c := &Conn{
		fd: fd, remote: nc.RemoteAddr(), local: nc.LocalAddr(), poller: p, task: &task{poller: p},
		writable: make(chan struct{}, 1), born: time.Now(),
	}
	c.uses.Store(1)
	return c
}

// note takes down what the poller was told, and reports whether the task has to know.
func (c *Conn) note(e uint32) bool {
	if e&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.ended.Store(true)
	}
	if e&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		select {
		case c.writable <- struct{}{}:
		default:
		}
	}
	if e&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) == 0 {
		return false
	}
	c.readable.Store(true)
	return true
}

// use keeps the descriptor from being closed, and so from being another's, until done.
func (c *Conn) use() bool {
	for {
		n := c.uses.Load()
		if n == 0 || c.closed.Load() {
			return false
		}
		if c.uses.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *Conn) done() {
	if c.uses.Add(-1) == 0 {
		c.poller.forget(c)
		unix.Close(c.fd)
	}
}

func (c *Conn) Read(b []byte) (int, error) {
	for {
		switch {
		case c.closed.Load():
			return 0, net.ErrClosed
		case c.overdue():
			return 0, os.ErrDeadlineExceeded
		case !c.readable.Load() && !c.ended.Load():
			c.task.to(idle)
		case !c.task.mayRead():
			c.task.to(looped)
		default:
			c.readable.Store(false)
			b = b[:min(len(b), readMost)]
			n, err := c.readNow(b)
			if n == len(b) { // else there was no more, or what there is comes behind urgent data, which nobody sends
				c.readable.Store(true)
			}
			if n > 0 || err != nil {
				return n, err
			}
			if !c.readable.Load() {
				c.task.to(idle)
			}
		}
	}
}

// readNow returns what has come, 0 and no error if nothing has.
func (c *Conn) readNow(b []byte) (int, error) {
	n, err := c.transfer(unix.SYS_READ, b)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// WriteNow sends what the socket takes at once, and returns how much that is.
func (c *Conn) WriteNow(b []byte) (int, error) {
	n, err := c.transfer(unix.SYS_WRITE, b)
	if errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	return n, err
}

// transfer is read(2) or write(2). It does not tell Go's scheduler of a system call that never blocks.
func (c *Conn) transfer(trap uintptr, b []byte) (int, error) {
	if !c.use() {
		return 0, net.ErrClosed
	}
	defer c.done()
	for {
		n, _, errno := syscall.RawSyscall(trap, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// Write waits until all is sent, but not beyond the write deadline. One goroutine writes at a time.
func (c *Conn) Write(b []byte) (sent int, err error) {
	for {
		n, err := c.WriteNow(b[sent:])
		if sent += n; err != nil || sent == len(b) {
			return sent, err
		}
		if err := c.awaitRoom(); err != nil {
			return sent, err
		}
	}
}

func (c *Conn) awaitRoom() error {
	var late <-chan time.Time
	if !c.until.IsZero() {
		timer := time.NewTimer(time.Until(c.until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-c.writable:
		return nil
	case <-late:
		return os.ErrDeadlineExceeded
	}
}

// Close ends what is read and written, at once. The descriptor is closed when nobody uses it any more.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		c.closed.Store(true)
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // fails if the client has ended it before
		select {
		case c.writable <- struct{}{}:
		default:
		}
		c.deadlines.Lock()
		if c.timer != nil {
			c.timer.Stop()
		}
		c.deadlines.Unlock()
		c.task.signal()
		c.done()
	})
	return nil
}

// CloseWrite ends what the client reads.
func (c *Conn) CloseWrite() error {
	if !c.use() {
		return net.ErrClosed
	}
	defer c.done()
	return unix.Shutdown(c.fd, unix.SHUT_WR)
}

func (c *Conn) overdue() bool {
	d := c.deadline.Load()
	return d != 0 && time.Since(c.born) >= time.Duration(d)
}

// SetReadDeadline has Read return by then; zero = never by itself. Any goroutine may call it.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.deadlines.Lock()
	defer c.deadlines.Unlock()
	if t.IsZero() {
		c.deadline.Store(0)
		if c.timer != nil {
			c.timer.Stop()
		}
		return nil
	}
	in := max(1, t.Sub(c.born)) // 0 is none
	c.deadline.Store(int64(in))
	left := in - time.Since(c.born)
	switch {
	case left <= 0:
		c.task.signal()
	case c.closed.Load():
	case c.timer == nil:
		c.timer = time.AfterFunc(left, c.task.signal)
	default:
		c.timer.Reset(left)
	}
	return nil
}

// SetWriteDeadline is for whoever writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.until = t
	return nil
}

// SetDeadline sets both.
func (c *Conn) SetDeadline(t time.Time) error {
	c.until = t
	return c.SetReadDeadline(t)
}

// LocalAddr is the address that the client connected to.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }
