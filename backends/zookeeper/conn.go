package zookeeper

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"
)

type dialer struct {
	s        *session
	patience time.Duration // the longest time without a packet from the ensemble
}

func (d dialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if !d.s.alive() {
		return nil, errSessionOver
	}
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: c, s: d.s, patience: d.patience, seen: d.s.zxid.Load()}
	t.buffered = bufio.NewReader(receiver{t})
	d.s.mu.Lock()
	d.s.netConn = t
	if !d.s.alive() { // since the check above
		err = errSessionOver
	}
	d.s.mu.Unlock()
	if err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// trackedConn is a connection to the ensemble. It fails if no packet arrives for a third of the session
// timeout, or for the time patience. Then the library reconnects. Each heartbeat is answered, so this
// finds a dead connection in time. The library itself would wait for two thirds, and in the handshake
// for ten times as long.
//
// It also tracks the session's zxid (transaction id) instead of the library, which reads and writes
// it at the same time after a reconnect. A watch could then miss a change. So the library sees the
// zxid 0 in all replies. After a reconnect all its watches fire, and the ensemble gets the right
// zxid in the handshake: it refuses a session that has seen newer data than the server has.
type trackedConn struct {
	net.Conn
	s           *session
	patience    time.Duration
	seen        int64         // the session's zxid when this connection was opened
	buffered    *bufio.Reader // the library reads each packet in two steps
	established atomic.Bool
	silent      atomic.Bool // sends nothing more

	// The start of the ensemble's first packet (ConnectResponse): length, protocol version, session
	// timeout. The library does not expose the timeout. Used only by the library's loop.
	response [12]byte
	received int
}

func (c *trackedConn) timeout() time.Duration {
	return time.Duration(int32(binary.BigEndian.Uint32(c.response[8:]))) * time.Millisecond
}

// Write writes one whole packet.
func (c *trackedConn) Write(p []byte) (int, error) {
	if c.silent.Load() {
		return 0, errSessionOver
	}
	if !c.established.Load() && len(p) >= 16 { // length, protocol version, zxid
		binary.BigEndian.PutUint64(p[8:], uint64(c.seen))
	}
	return c.Conn.Write(p)
}

// Read fills p. The library reads the length of a packet, and then the packet: number, zxid, error.
// The number of an event or a ping is negative. More events with the same zxid may follow.
func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := io.ReadFull(c.buffered, p)
	if n >= 12 && c.established.Load() {
		if zxid := int64(binary.BigEndian.Uint64(p[4:])); int32(binary.BigEndian.Uint32(p)) >= 0 && zxid > c.s.zxid.Load() {
			c.s.zxid.Store(zxid)
		}
		clear(p[4:12])
	}
	return n, err
}

// receiver reads from the network.
type receiver struct{ c *trackedConn }

func (r receiver) Read(p []byte) (int, error) {
	c := r.c
	n, err := c.Conn.Read(p)
	if n > 0 && !c.established.Load() {
		c.received += copy(c.response[c.received:], p[:n])
	}
	return n, err
}

func (c *trackedConn) SetReadDeadline(t time.Time) error {
	patience := c.patience
	if c.established.Load() {
		patience = min(patience, c.timeout()/3)
	}
	if soon := time.Now().Add(patience); t.After(soon) {
		t = soon
	}
	return c.Conn.SetReadDeadline(t)
}

// hosts implements zk.HostProvider. It returns the configured servers in turn, by name. Each
// connection resolves the name anew, so a server may move. The library calls its methods on one
// goroutine at a time.
type hosts struct {
	servers []string
	at      int // index of the next
	tried   int // servers returned since the last success
}

func (h *hosts) Init(servers []string) error { h.servers = servers; return nil }

func (h *hosts) Len() int { return len(h.servers) }

func (h *hosts) Next() (server string, retryStart bool) {
	if retryStart = h.tried == len(h.servers); retryStart {
		h.tried = 0
	}
	server = h.servers[h.at]
	h.at = (h.at + 1) % len(h.servers)
	h.tried++
	return server, retryStart
}

func (h *hosts) Connected() { h.tried = 0 }

type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client", "text", fmt.Sprintf(format, args...))
}
