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

// dialer makes the connections of a session.
type dialer struct {
	s         *session
	handshake time.Duration
}

func (d dialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	d.s.mu.Lock()
	barred := d.s.isBarredLocked()
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
	d.s.netConn, barred = t, d.s.isBarredLocked()
	d.s.mu.Unlock()
	if barred { // since we looked
		c.Close()
		return nil, errSessionOver
	}
	return t, nil
}

// wire is a connection that bounds the handshake, where the library would wait for
// ten times its usual timeout, and knows when it last heard something.
//
// It also keeps the zxid that the session has seen, in the library's place. The library would
// write down that of each reply while it puts together, after a reconnect, what its watches
// missed since: with the newer one in that question, a watch would miss a change. So the
// library sees no zxid in a reply, and what it sends gets the one that was seen when
// this connection was made.
type trackedConn struct {
	net.Conn
	s           *session
	seen        int64 // the zxid that the session had seen before
	established atomic.Bool
	silent      atomic.Bool     // nothing is sent any more
	response    connectResponse // read and written by the library's loop only, before established
	reply       reply           // the same by its receiver, after established
}

// Where the zxid is in what we send and receive: in a ConnectRequest after length and
// protocol version, in a SetWatches after length, number and code, in a reply
// after length and number.
const (
	zxidInConnect    = 8
	zxidInSetWatches = 12
	zxidInReply      = 8

	opSetWatches = 101
)

// Write takes requests in one piece.
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

// hello is the beginning of the ensemble's first packet (ConnectResponse): length, protocol
// version, the session's timeout, its id, and its password with a length before it.
// The library keeps the timeout to itself.
type connectResponse struct {
	raw [40]byte
	n   int
}

func (r *connectResponse) add(p []byte) { r.n += copy(r.raw[r.n:], p) }

func (r *connectResponse) timeout() time.Duration {
	return time.Duration(int32(binary.BigEndian.Uint32(r.raw[8:12]))) * time.Millisecond
}

// reply finds the zxids in the replies that it is given piece by piece.
type reply struct {
	at   int // how much of the packet that is being received we have seen
	size int // of the packet, with its length; known when at >= 4
	head [zxidInReply + 8]byte
}

// take hides the zxids in p and returns the largest of those that end there, 0 if there is none.
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
			if int32(binary.BigEndian.Uint32(r.head[4:])) >= 0 { // no event or ping: others of its zxid may follow
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

// hosts gives the servers in turn, by the names that we were given: they are looked
// up each time, so a server may move.
type hosts struct {
	mu      sync.Mutex // guards what follows
	servers []string
	at      int // the next
	tried   int // since the last that worked
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error { h.servers = servers; return nil }

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider.
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

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}

// libraryLog passes on what the library has to say, none of which is news.
type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client", "says", fmt.Sprintf(format, args...))
}
