package resp

import (
	"errors"
	"net"
	"os"
	"time"
)

// wire is the client's network connection. What is written has until its deadline
// only if the client takes nothing: each bit that it takes gives it the time anew.
//
// crypto/tls writes through it too. To that a timeout is the end of the connection,
// so it must not see one while the client takes anything, however slowly.
type wire struct {
	net.Conn
	timeout time.Duration

	// Of writes; protected as these are serialized, by Conn.wmu and crypto/tls.
	deadline time.Time
	failed   bool // one did
}

// Write returns when all is sent, or could not be.
func (w *wire) Write(b []byte) (sent int, err error) {
	for sent < len(b) {
		// A deadline is a timer, so it is set for longer than needed and moved only
		// when it has become too close.
		if now := time.Now(); w.deadline.Sub(now) < w.timeout {
			w.deadline = now.Add(w.timeout + w.timeout/2)
			if err := w.Conn.SetWriteDeadline(w.deadline); err != nil {
				w.failed = true
				return sent, err
			}
		}
		n, err := w.Conn.Write(b[sent:])
		sent += n
		if err != nil && !(n > 0 && errors.Is(err, os.ErrDeadlineExceeded)) {
			w.failed = true
			return sent, err
		}
	}
	return sent, nil
}

// SetWriteDeadline does nothing: the deadline is the wire's own affair. crypto/tls
// sets one for its last alert; see Conn.farewell.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// hurry makes what is written from now on have less time. The caller is the only
// one who writes.
func (w *wire) hurry(timeout time.Duration) {
	w.timeout = timeout - timeout/3 // Write adds half
	if limit := time.Now().Add(timeout); limit.Before(w.deadline) {
		w.deadline = time.Time{}
	}
}

// closeWrite ends what the client reads, and reports whether it could.
func (w *wire) closeWrite() bool {
	half, ok := w.Conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}
