package resp

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
)

// pollers are those of a server; they take connections in turn.
type pollers struct {
	wanted int

	mu   sync.Mutex // protects the rest
	all  []*poller
	last int
}

// open starts the pollers, at the first call that there is. They count in served.
func (p *pollers) open(served *atomic.Int64, log *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.all) < p.wanted {
		one, err := newPoller(served)
		if err != nil {
			log.Info("connections have a goroutine each", "err", err)
			p.wanted = len(p.all)
			return
		}
		p.all = append(p.all, one)
	}
}

// close ends the pollers. No connection is left.
func (p *pollers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		one.close()
	}
	p.all, p.wanted = nil, 0
}

// adopt returns nc as the connection of a poller, or as it is.
func (p *pollers) adopt(nc net.Conn) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	tcp, ok := nc.(*net.TCPConn)
	if !ok || len(p.all) == 0 {
		return nc
	}
	p.last = (p.last + 1) % len(p.all)
	if s, err := p.all[p.last].adopt(tcp); err == nil {
		return s
	}
	return nc
}
