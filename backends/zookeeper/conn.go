package zookeeper

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"time"
)

// dial connects to a server of the ensemble, unless the session is over.
func (s *session) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: timeout}).DialContext(s.ctx, network, address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && !s.alive() { // since it has connected
		c.Close()
		err = errSessionOver
	}
	s.dialErr = err
	if err != nil {
		return nil, err
	}
	s.netConn = &trackedConn{Conn: c, s: s, buffered: bufio.NewReader(c)}
	return s.netConn, nil
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
//
// The library uses a connection for the handshake on one goroutine, and then reads and writes on two.
type trackedConn struct {
	net.Conn
	s        *session
	buffered *bufio.Reader // the library reads each packet in two steps
	timeout  time.Duration // of the session, from the handshake; 0 = not yet. The library does not expose it
}

// Write writes one whole packet, unless the session is over. It returns no error, since the library hangs
// after one in the packet with the credentials. Instead it closes the connection, so that Read fails.
func (c *trackedConn) Write(p []byte) (int, error) {
	if !c.s.alive() {
		c.Close()
	}
	if c.timeout == 0 && len(p) >= 16 { // the handshake: length, protocol version, zxid
		binary.BigEndian.PutUint64(p[8:], uint64(c.s.zxid))
	}
	if _, err := c.Conn.Write(p); err != nil {
		c.Close()
	}
	return len(p), nil
}

// Read fills p. The library reads the length of a packet, and then the packet. The first one is the
// answer to the handshake: protocol version, session timeout. The others are: number, zxid, error. The
// number of an event or a ping is negative. More events with the same zxid may follow.
func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := io.ReadFull(c.buffered, p)
	switch {
	case n < 12:
	case c.timeout == 0:
		c.timeout = time.Duration(binary.BigEndian.Uint32(p[4:])) * time.Millisecond
	default:
		if number := int32(binary.BigEndian.Uint32(p)); number >= 0 {
			c.s.zxid = max(c.s.zxid, int64(binary.BigEndian.Uint64(p[4:])))
		}
		clear(p[4:12])
	}
	return n, err
}

func (c *trackedConn) SetReadDeadline(t time.Time) error {
	patience := c.s.patience
	if c.timeout != 0 {
		patience = min(patience, c.timeout/3)
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
