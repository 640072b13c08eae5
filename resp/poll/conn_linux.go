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

// maxRead is the maximum number of bytes that one Read returns, so that rounds are fair to clients
// with small buffers.
const maxRead = 64 << 10

// Conn is a net.Conn whose socket a Poller watches instead of Go's own poller. Only the Conn's
// coroutine may call Read, which makes it idle until there is something to read. Write may block;
// WriteNow never does. One goroutine at a time may write.
type Conn struct {
	fd            int
	id            uint64 // key in poller.conns
	remote, local net.Addr
	poller        *Poller
	task          *task

	readable atomic.Bool
	ended    atomic.Bool // the client or an error has ended the stream; read(2) shows which
	writable chan struct{}

	deadlines     sync.Mutex   // held while the read deadline changes
	deadline      atomic.Int64 // of Read, in nanoseconds since created; 0 = none
	timer         *time.Timer  // signals the coroutine at the deadline of Read
	writeDeadline time.Time    // of Write
	created       time.Time

	closing sync.Once
	closed  atomic.Bool
	refs    atomic.Int64 // number of users of fd, plus one until Close
}

func newConn(p *Poller, fd int, nc net.Conn) *Conn {
	c := &Conn{
		fd: fd, remote: nc.RemoteAddr(), local: nc.LocalAddr(), poller: p, task: &task{poller: p},
		writable: make(chan struct{}, 1), created: time.Now(),
	}
	c.refs.Store(1)
	return c
}

// record stores events of the socket, and reports whether the task must run.
func (c *Conn) record(e uint32) bool {
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

// ref keeps the descriptor open until unref, so that the kernel does not reuse its number. It
// returns false if the connection is closed.
func (c *Conn) ref() bool {
	for {
		n := c.refs.Load()
		if n == 0 || c.closed.Load() {
			return false
		}
		if c.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *Conn) unref() {
	if c.refs.Add(-1) == 0 {
		c.poller.remove(c)
		unix.Close(c.fd)
	}
}

// Read returns the next bytes from the client, at most 64 KiB.
func (c *Conn) Read(b []byte) (int, error) {
	for {
		switch {
		case c.closed.Load():
			return 0, net.ErrClosed
		case c.overdue():
			return 0, os.ErrDeadlineExceeded
		case !c.readable.Load() && !c.ended.Load():
			c.task.switchTo(idle)
		case !c.task.mayRead():
			c.task.switchTo(shared)
		default:
			c.readable.Store(false)
			b = b[:min(len(b), maxRead)]
			n, err := c.readNow(b)
			if n == len(b) { // the socket may have more; after a shorter read it is empty
				c.readable.Store(true)
			}
			if n > 0 || err != nil {
				return n, err
			}
			if !c.readable.Load() {
				c.task.switchTo(idle)
			}
		}
	}
}

// readNow reads the available bytes. It returns 0 and nil if there are none.
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

// WriteNow sends as many bytes as the socket accepts without waiting, and returns their number.
func (c *Conn) WriteNow(b []byte) (int, error) {
	n, err := c.transfer(unix.SYS_WRITE, b)
	if errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	return n, err
}

// transfer calls read(2) or write(2). The call never blocks, so Go's scheduler need not know of it.
func (c *Conn) transfer(trap uintptr, b []byte) (int, error) {
	if !c.ref() {
		return 0, net.ErrClosed
	}
	defer c.unref()
	for {
		n, _, errno := syscall.RawSyscall(trap,
			uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// Write returns when all bytes are sent, or at the write deadline.
func (c *Conn) Write(b []byte) (sent int, err error) {
	for {
		n, err := c.WriteNow(b[sent:])
		if sent += n; err != nil || sent == len(b) {
			return sent, err
		}
		if err := c.awaitWritable(); err != nil {
			return sent, err
		}
	}
}

func (c *Conn) awaitWritable() error {
	var late <-chan time.Time
	if !c.writeDeadline.IsZero() {
		timer := time.NewTimer(time.Until(c.writeDeadline))
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

// Close ends Read and Write at once.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		c.closed.Store(true)
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // fails if the client has ended the connection
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
		c.unref()
	})
	return nil
}

// CloseWrite ends the stream to the client.
func (c *Conn) CloseWrite() error {
	if !c.ref() {
		return net.ErrClosed
	}
	defer c.unref()
	return unix.Shutdown(c.fd, unix.SHUT_WR)
}

func (c *Conn) overdue() bool {
	d := c.deadline.Load()
	return d != 0 && time.Since(c.created) >= time.Duration(d)
}

// SetReadDeadline sets the deadline of Read; zero = none. Any goroutine may call it.
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
	in := max(1, t.Sub(c.created)) // 0 would mean no deadline
	c.deadline.Store(int64(in))
	left := in - time.Since(c.created)
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

// SetWriteDeadline sets the deadline of Write. Only the writing goroutine may call it.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline = t
	return nil
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	c.writeDeadline = t
	return c.SetReadDeadline(t)
}

// LocalAddr returns the address that the client connected to.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }
