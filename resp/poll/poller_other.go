//go:build !linux

package poll

import (
	"errors"
	"net"
)

// Poller exists on Linux only.
type Poller struct{}

// New returns errors.ErrUnsupported.
func New() (*Poller, error) { return nil, errors.ErrUnsupported }

// Adopt is never called.
func (p *Poller) Adopt(Socket) (*Conn, error) { return nil, errors.ErrUnsupported }

// Wake is never called.
func (p *Poller) Wake() {}

// Close is never called.
func (p *Poller) Close() {}

func (p *Poller) enqueue(*task, bool) {}

func (p *Poller) enqueueOrdered(*task) {}

func (p *Poller) enqueuePaused(*task) {}

// Conn exists on Linux only.
type Conn struct {
	net.Conn
	task *task
}

// WriteNow is never called.
func (c *Conn) WriteNow([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Vanished returns false.
func Vanished(net.Conn) bool { return false }
