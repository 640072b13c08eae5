//go:build !linux

package resp

import (
	"errors"
	"net"
)

// poller is for Linux only: elsewhere each connection has a goroutine.
type poller struct{}

func newPoller() (*poller, error) { return nil, errors.ErrUnsupported }

func (p *poller) adopt(*net.TCPConn) (*sock, error) { return nil, errors.ErrUnsupported }

func (p *poller) enqueue(*task, bool) {}

func (p *poller) look() {}

func (p *poller) lineUp(*task) {}

func (p *poller) push(*Conn) bool { return false }

func (p *poller) awaitPushes() {}

func (p *poller) close() {}

type sock struct {
	net.Conn
	task   *task
	poller *poller
}

func (s *sock) writeNow([]byte) (int, error) { return 0, errors.ErrUnsupported }
