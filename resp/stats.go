package resp

import (
	"sync/atomic"
	"time"
)

// Stats are a server's figures, for INFO.
type Stats struct {
	// Counted since the start.
	ConnectionsReceived int64 // accepted connections, including rejected ones
	Rejected            int64 // connections rejected because of MaxClients
	SlowCut             int64 // connections closed because the client did not read its pushes
	BytesIn, BytesOut   int64

	// Present numbers of connections.
	Connected   int
	Blocked     int // those with a blocked command
	Subscribers int // those with a subscription
}

type counters struct {
	received, rejected, slowCut, bytesIn, bytesOut atomic.Int64
}

// Stats returns the figures, which it reads one after the other.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	connected := len(s.conns)
	s.mu.Unlock()
	return Stats{
		ConnectionsReceived: s.received.Load(),
		Rejected:            s.rejected.Load(),
		SlowCut:             s.slowCut.Load(),
		BytesIn:             s.bytesIn.Load(),
		BytesOut:            s.bytesOut.Load(),
		Connected:           connected,
		Blocked:             int(s.blocked.Load()),
		Subscribers:         int(s.cfg.Broker.clients.Load()),
	}
}

// onceAMinute limits log lines that any client can cause.
type onceAMinute struct{ last atomic.Int64 }

// due returns true at most once a minute.
func (o *onceAMinute) due() bool {
	now, last := time.Now().UnixNano(), o.last.Load()
	return now-last >= int64(time.Minute) && o.last.CompareAndSwap(last, now)
}
