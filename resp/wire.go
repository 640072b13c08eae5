package resp

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// link carries bytes to and from the client, in plain or by TLS.
type link struct {
	wire   wire
	stream io.ReadWriter // carries commands and replies: &wire, or tls
	tls    *tls.Conn     // nil = no TLS
	wmu    sync.Mutex    // serializes writes of whole frames
}

// wire is the client's network connection. A write fails only after the client has read nothing for
// the timeout. Any progress restarts the timeout.
//
// After a write that timed out, crypto/tls refuses all others. So wire hides timeouts from
// crypto/tls while the client makes progress.
type wire struct {
	net.Conn
	raw     syscall.RawConn // nil = the connection has no descriptor
	timeout time.Duration

	// link.wmu and crypto/tls serialize writes, and thereby protect these fields.
	deadline time.Time // deadline of the socket's writes
	failed   bool      // a write has failed
	// beforeWait is called once or more before a write waits for the client; nil = nothing is called
	beforeWait func()
}

func newWire(nc net.Conn, timeout time.Duration) wire {
	w := wire{Conn: nc, timeout: timeout}
	if sc, ok := nc.(syscall.Conn); ok {
		w.raw, _ = sc.SyscallConn() // an error leaves nil
	}
	return w
}

// Write sends all bytes. The socket's deadlines are half the timeout apart, because a write that
// times out does not say when it last made progress. With deadlines of the whole timeout, a client
// could read nothing for almost twice the timeout.
func (w *wire) Write(b []byte) (sent int, err error) {
	var progress time.Time
	for sent < len(b) {
		now := time.Now()
		if progress.IsZero() {
			progress = now
		}
		// A new deadline resets a timer, so Write moves the deadline only when it is near.
		if w.deadline.Sub(now) < w.timeout/4 {
			w.deadline = now.Add(w.timeout / 2)
			if err := w.Conn.SetWriteDeadline(w.deadline); err != nil {
				w.failed = true
				return sent, err
			}
		}
		n, err := w.write(b[sent:])
		sent += n
		switch {
		case err == nil:
		case n > 0 && errors.Is(err, os.ErrDeadlineExceeded):
			progress = time.Now()
		case !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(progress) >= w.timeout:
			w.failed = true
			return sent, err
		}
	}
	return sent, nil
}

func (w *wire) write(b []byte) (n int, err error) {
	if w.beforeWait == nil {
		return w.Conn.Write(b)
	}
	if w.raw != nil {
		rawErr := w.raw.Write(func(fd uintptr) bool {
			n, err = syscall.Write(int(fd), b)
			return true
		})
		switch {
		case rawErr != nil:
			return 0, rawErr
		case err == nil && n == len(b):
			return n, nil
		}
		n = max(n, 0) // the next write reports an error again
	}
	w.beforeWait()
	rest, err := w.Conn.Write(b[n:])
	return n + rest, err
}

// SetWriteDeadline does nothing. crypto/tls calls it for close_notify, but closeTLS sets a timeout.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// shortenTimeout sets a shorter timeout for later writes. Only the writing goroutine may call it.
func (w *wire) shortenTimeout(timeout time.Duration) {
	w.timeout = timeout
	if limit := time.Now().Add(timeout); limit.Before(w.deadline) {
		w.deadline = time.Time{}
	}
}

// closeWrite ends the stream to the client, and reports whether it could.
func (w *wire) closeWrite() bool {
	half, ok := w.Conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}
