package simbatest

import (
	"errors"
	"net"
	"sync"
	"time"
)

// lingerTimeout bounds how long a closed connection still sends the bytes in its buffer.
const lingerTimeout = 10 * time.Second

// conn is the server's end of a net.Pipe. A client reads no reply before it has sent its whole
// pipeline. So conn has an unlimited buffer for the replies.
type conn struct {
	net.Conn

	mu     sync.Mutex // guards what follows
	unsent []byte
	closed bool
	failed error // the error of a write to the pipe; nil = no write has failed

	changed chan struct{} // has an element when unsent or closed has changed
}

func newConn(pipe net.Conn) *conn { return &conn{Conn: pipe, changed: make(chan struct{}, 1)} }

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed != nil:
		return 0, c.failed
	case c.closed:
		return 0, net.ErrClosed
	}
	c.unsent = append(c.unsent, p...)
	c.wake()
	return len(p), nil
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.closed {
		err = net.ErrClosed
	}
	return n, err
}

// Close implements net.Conn. It sends the rest of the buffer in the background.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.wake()
	return errors.Join(
		c.Conn.SetReadDeadline(time.Unix(1, 0)), // ends Read
		c.Conn.SetWriteDeadline(time.Now().Add(lingerTimeout)),
	)
}

// SetWriteDeadline implements net.Conn. It does nothing, since Write never blocks.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// send sends the bytes in the buffer to the client. It returns when the connection is closed and
// the buffer is empty, or when a write to the pipe fails.
func (c *conn) send() {
	defer c.Conn.Close()
	for {
		c.mu.Lock()
		next, closed := c.unsent, c.closed
		c.unsent = nil
		c.mu.Unlock()
		if len(next) > 0 {
			if _, err := c.Conn.Write(next); err != nil {
				c.mu.Lock()
				c.failed = err
				c.mu.Unlock()
				return
			}
			continue
		}
		if closed {
			return
		}
		<-c.changed
	}
}
