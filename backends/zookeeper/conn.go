package zookeeper

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

type dialer struct {
	s         *session
	handshake time.Duration
}

func (d dialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	d.s.mu.Lock()
	barred := d.s.barredLocked()
	d.s.mu.Unlock()
	if barred {
		return nil, errSessionOver
	}
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: c, s: d.s, seen: d.s.zxid.Load()}
	if err := c.SetDeadline(time.Now().Add(d.handshake)); err != nil {
		c.Close()
		return nil, err
	}
	d.s.mu.Lock()
	d.s.netConn, barred = t, d.s.barredLocked()
	d.s.mu.Unlock()
	if barred { // since the check above
		c.Close()
		return nil, errSessionOver
	}
	return t, nil
}

// trackedConn is a connection to the ensemble. It bounds the handshake, for which the library would
// wait ten times its timeout. It records when bytes last arrived.
//
// It also tracks the session's zxid (transaction id) instead of the library. After a reconnect, the
// library asks the ensemble which of its watches missed a change since a zxid. While the library
// builds that request, replies may already advance its zxid. With the newer zxid, a watch would
// miss a change. So trackedConn clears the zxid in replies. In requests it fills in the zxid that
// the session had when this connection was opened.
type trackedConn struct {
	net.Conn
	s           *session
	seen        int64 // the session's zxid when this connection was opened
	established atomic.Bool
	silent      atomic.Bool     // sends nothing more
	response    connectResponse // used only by the library's loop, before established
	reply       reply           // used only by the library's receiver, after established
}

// The offsets of the zxid. In a ConnectRequest it follows length and protocol version. In a
// SetWatches it follows length, number and code. In a reply it follows length and number.
const (
	zxidInConnect    = 8
	zxidInSetWatches = 12
	zxidInReply      = 8

	opSetWatches = 101
)

// Write writes one whole request.
func (c *trackedConn) Write(p []byte) (int, error) {
	if c.silent.Load() {
		return 0, errSessionOver
	}
	switch {
	case !c.established.Load():
		if len(p) >= zxidInConnect+8 {
			binary.BigEndian.PutUint64(p[zxidInConnect:], uint64(c.seen))
		}
	case len(p) >= zxidInSetWatches+8 && binary.BigEndian.Uint32(p[8:12]) == opSetWatches:
		binary.BigEndian.PutUint64(p[zxidInSetWatches:], uint64(c.seen))
	}
	return c.Conn.Write(p)
}

func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.s.lastRead.Store(int64(time.Since(epoch)))
		if !c.established.Load() {
			c.response.add(p[:n])
		} else if zxid := c.reply.take(p[:n]); zxid > c.s.zxid.Load() {
			c.s.zxid.Store(zxid)
		}
	}
	return n, err
}

func (c *trackedConn) SetReadDeadline(t time.Time) error {
	if !c.established.Load() {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *trackedConn) SetWriteDeadline(t time.Time) error {
	if !c.established.Load() {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

// connectResponse is the start of the ensemble's first packet (ConnectResponse). It has length,
// protocol version, session timeout, session id, and a password with its length. It is parsed here
// because the library does not expose the timeout.
type connectResponse struct {
	raw [40]byte
	n   int
}

func (r *connectResponse) add(p []byte) { r.n += copy(r.raw[r.n:], p) }

func (r *connectResponse) timeout() time.Duration {
	return time.Duration(int32(binary.BigEndian.Uint32(r.raw[8:12]))) * time.Millisecond
}

// reply finds the zxids in a stream of replies.
type reply struct {
	at   int // bytes of the current packet so far
	size int // of the packet, with its length field; known when at >= 4
	head [zxidInReply + 8]byte
}

// take clears the zxids in p, a part of the stream. It returns the largest zxid that ends in p, or
// 0.
func (r *reply) take(p []byte) (zxid int64) {
	for len(p) > 0 {
		n := len(p)
		if r.at >= 4 {
			n = min(n, r.size-r.at)
		} else {
			n = min(n, 4-r.at)
		}
		if r.at < len(r.head) {
			copy(r.head[r.at:], p[:n])
		}
		if before := r.at; before < len(r.head) && before+n >= len(r.head) {
			// Skip events and pings, whose number is negative: more events with the same zxid may
			// follow.
			if int32(binary.BigEndian.Uint32(r.head[4:])) >= 0 {
				zxid = max(zxid, int64(binary.BigEndian.Uint64(r.head[zxidInReply:])))
			}
		}
		clear(p[min(n, max(0, zxidInReply-r.at)):min(n, max(0, len(r.head)-r.at))])
		r.at += n
		p = p[n:]
		if r.at == 4 {
			r.size = 4 + int(binary.BigEndian.Uint32(r.head[:4]))
		}
		if r.at >= 4 && r.at == r.size {
			r.at = 0
		}
	}
	return zxid
}

// hosts implements zk.HostProvider. It returns the configured servers in turn, by name. Each
// connection resolves the name anew, so a server may move.
type hosts struct {
	mu      sync.Mutex // guards the fields below
	servers []string
	at      int // index of the next
	tried   int // servers returned since the last success
}

func (h *hosts) Init(servers []string) error { h.servers = servers; return nil }

func (h *hosts) Len() int { return len(h.servers) }

func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.at]
	h.at = (h.at + 1) % len(h.servers)
	h.tried++
	if h.tried > len(h.servers) {
		h.tried = 1
		return server, true
	}
	return server, false
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}

type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client", "text", fmt.Sprintf(format, args...))
}
