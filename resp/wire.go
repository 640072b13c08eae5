package resp

import (
	"errors"
	"net"
	"os"
	"time"
)

// wire is the client's network connection. A write fails only after the client has read nothing for
// the timeout. Any progress restarts the timeout.
//
// After a write that timed out, crypto/tls refuses all others. So wire hides timeouts from
// crypto/tls while the client makes progress.
type wire struct {
	net.Conn
	timeout time.Duration

	// Conn.wmu and crypto/tls serialize writes, and thereby protect these fields.
	deadline time.Time // deadline of the socket's writes
	failed   bool      // a write has failed
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
		n, err := w.Conn.Write(b[sent:])
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
