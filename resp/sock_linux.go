package resp

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

// sock is a socket that a poller watches instead of Go's: a net.Conn whose Read, for its task only, has that go idle
// until there is something to read. Write is for goroutines that may wait; who may not has writeNow.
type sock struct {
	fd            int
	id            uint64 // in its poller
	remote, local net.Addr
	poller        *poller
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

func newSock(p *poller, fd int, nc net.Conn) *sock {
	s := &sock{
		fd: fd, remote: nc.RemoteAddr(), local: nc.LocalAddr(), poller: p, task: &task{poller: p},
		writable: make(chan struct{}, 1), born: time.Now(),
	}
	s.uses.Store(1)
	return s
}

// note takes down what the poller was told, and reports whether the task has to know.
func (s *sock) note(e uint32) bool {
	if e&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.ended.Store(true)
	}
	if e&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		select {
		case s.writable <- struct{}{}:
		default:
		}
	}
	if e&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) == 0 {
		return false
	}
	s.readable.Store(true)
	return true
}

// use keeps the descriptor from being closed, and so from being another's, until done.
func (s *sock) use() bool {
	for {
		n := s.uses.Load()
		if n == 0 || s.closed.Load() {
			return false
		}
		if s.uses.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *sock) done() {
	if s.uses.Add(-1) == 0 {
		s.poller.forget(s)
		unix.Close(s.fd)
	}
}

func (s *sock) Read(b []byte) (int, error) {
	for {
		switch {
		case s.closed.Load():
			return 0, net.ErrClosed
		case s.overdue():
			return 0, os.ErrDeadlineExceeded
		case !s.readable.Load() && !s.ended.Load():
			s.task.to(idle)
		case !s.task.mayRead():
			s.task.to(looped)
		default:
			s.readable.Store(false)
			b = b[:min(len(b), batchBuffer)] // a turn is as long for all, whatever room they have
			n, err := s.readNow(b)
			if n == len(b) { // else there was no more, or what there is comes behind urgent data, which nobody sends
				s.readable.Store(true)
			}
			if n > 0 || err != nil {
				return n, err
			}
			if !s.readable.Load() {
				s.task.to(idle)
			}
		}
	}
}

// readNow returns what has come, 0 and no error if nothing has.
func (s *sock) readNow(b []byte) (int, error) {
	n, err := s.transfer(unix.SYS_READ, b)
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

// writeNow sends what the socket takes at once.
func (s *sock) writeNow(b []byte) (int, error) {
	n, err := s.transfer(unix.SYS_WRITE, b)
	if errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	return n, err
}

// transfer is read(2) or write(2). It does not tell Go's scheduler of a system call that never blocks.
func (s *sock) transfer(trap uintptr, b []byte) (int, error) {
	if !s.use() {
		return 0, net.ErrClosed
	}
	defer s.done()
	for {
		n, _, errno := syscall.RawSyscall(trap, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
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
func (s *sock) Write(b []byte) (sent int, err error) {
	for {
		n, err := s.writeNow(b[sent:])
		if sent += n; err != nil || sent == len(b) {
			return sent, err
		}
		if err := s.awaitRoom(); err != nil {
			return sent, err
		}
	}
}

func (s *sock) awaitRoom() error {
	var late <-chan time.Time
	if !s.until.IsZero() {
		timer := time.NewTimer(time.Until(s.until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-s.writable:
		return nil
	case <-late:
		return os.ErrDeadlineExceeded
	}
}

// Close ends what is read and written, at once. The descriptor is closed when nobody uses it any more.
func (s *sock) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // fails if the client has ended it before
		select {
		case s.writable <- struct{}{}:
		default:
		}
		s.deadlines.Lock()
		if s.timer != nil {
			s.timer.Stop()
		}
		s.deadlines.Unlock()
		s.task.signal()
		s.done()
	})
	return nil
}

// CloseWrite ends what the client reads.
func (s *sock) CloseWrite() error {
	if !s.use() {
		return net.ErrClosed
	}
	defer s.done()
	return unix.Shutdown(s.fd, unix.SHUT_WR)
}

func (s *sock) overdue() bool {
	d := s.deadline.Load()
	return d != 0 && time.Since(s.born) >= time.Duration(d)
}

// SetReadDeadline has Read return by then; zero = never by itself. Any goroutine may call it.
func (s *sock) SetReadDeadline(t time.Time) error {
	s.deadlines.Lock()
	defer s.deadlines.Unlock()
	if t.IsZero() {
		s.deadline.Store(0)
		if s.timer != nil {
			s.timer.Stop()
		}
		return nil
	}
	in := max(1, t.Sub(s.born)) // 0 is none
	s.deadline.Store(int64(in))
	left := in - time.Since(s.born)
	switch {
	case left <= 0:
		s.task.signal()
	case s.closed.Load():
	case s.timer == nil:
		s.timer = time.AfterFunc(left, s.task.signal)
	default:
		s.timer.Reset(left)
	}
	return nil
}

// SetWriteDeadline is for whoever writes.
func (s *sock) SetWriteDeadline(t time.Time) error {
	s.until = t
	return nil
}

// SetDeadline sets both.
func (s *sock) SetDeadline(t time.Time) error {
	s.until = t
	return s.SetReadDeadline(t)
}

// LocalAddr is the address that the client connected to.
func (s *sock) LocalAddr() net.Addr { return s.local }

// RemoteAddr is the client's address.
func (s *sock) RemoteAddr() net.Addr { return s.remote }
