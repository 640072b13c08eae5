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
//
// A call that ends by its deadline may have sent a part, at its beginning as well as at
// its end. So deadlines are parts of the timeout: who took something at first and then
// nothing would have twice the time otherwise.
func (w *wire) Write(b []byte) (sent int, err error) {
	var progress time.Time
	for sent < len(b) {
		now := time.Now()
		if progress.IsZero() {
			progress = now
		}
		// A deadline is a timer, so it is set for longer than needed and moved only
		// when it has become too close.
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

// SetWriteDeadline does nothing: the deadline is the wire's own affair. crypto/tls
// sets one for its last alert; see Conn.farewell.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// hurry makes what is written from now on have less time. The caller is the only
// one who writes.
func (w *wire) hurry(timeout time.Duration) {
	w.timeout = timeout
	if limit := time.Now().Add(timeout); limit.Before(w.deadline) {
		w.deadline = time.Time{}
	}
}

// closeWrite ends what the client reads, and reports whether it could.
func (w *wire) closeWrite() bool {
	half, ok := w.Conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}
