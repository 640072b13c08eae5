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
	abandoned := d.s.abandoned
	d.s.mu.Unlock()
	if abandoned {
		return nil, errSessionOver
	}
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: c, s: d.s, rewatched: make(chan struct{}), closed: make(chan struct{})}
	if err := c.SetDeadline(time.Now().Add(d.handshake)); err != nil {
		c.Close()
		return nil, err
	}
	d.s.mu.Lock()
	w.again = !d.s.confirmed.IsZero()
	d.s.wire, abandoned = w, d.s.abandoned
	d.s.mu.Unlock()
	if abandoned { // since we looked
		c.Close()
		return nil, errSessionOver
	}
	return w, nil
}

// wire is a connection that bounds the handshake, where the library would wait for
// ten times its usual timeout, and knows when it last heard something.
//
// It also mends a race of the library: after a reconnect it asks for what its watches missed since
// the last zxid that it saw, but it may see a newer one, in the reply to another request,
// before it has put the question together. So such replies are held back until
// the question is on its way. (It always asks, see session.greet.)
type wire struct {
	net.Conn
	s           *session
	again       bool // not the first of its session
	established atomic.Bool
	hello       hello // read and written by the library's loop only, before established

	asked     atomic.Bool   // a request was sent whose reply may have a zxid
	rewatched chan struct{} // closed when the watches were asked for
	watching  bool          // rewatched is closed; written by the library's sender only
	closed    chan struct{}
	closing   sync.Once
}

// The codes of requests whose replies have no zxid, and that of asking for watches.
const (
	opPing       = 11
	opAuth       = 100
	opSetWatches = 101
)

func (w *wire) Write(p []byte) (int, error) {
	// Length, number and code of the request come first, in one piece.
	if w.again && w.established.Load() && !w.watching && len(p) >= 12 {
		switch binary.BigEndian.Uint32(p[8:12]) {
		case opSetWatches:
			w.watching = true
			close(w.rewatched)
		case opPing, opAuth:
		default:
			w.asked.Store(true)
		}
	}
	return w.Conn.Write(p)
}

// Close may be called by several.
func (w *wire) Close() error {
	w.closing.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.s.heard.Store(int64(time.Since(epoch)))
		if !w.established.Load() {
			w.hello.add(p[:n])
		}
	}
	if w.again && w.asked.Load() {
		select {
		case <-w.rewatched:
		case <-w.closed:
		}
	}
	return n, err
}

func (w *wire) SetReadDeadline(t time.Time) error {
	if !w.established.Load() {
		return nil
	}
	return w.Conn.SetReadDeadline(t)
}

func (w *wire) SetWriteDeadline(t time.Time) error {
	if !w.established.Load() {
		return nil
	}
	return w.Conn.SetWriteDeadline(t)
}

// hello is the beginning of the ensemble's first packet (ConnectResponse): length, protocol
// version, the session's timeout, its id, and its password with a length before it.
// The library keeps the timeout to itself.
type hello struct {
	raw [40]byte
	n   int
}

func (h *hello) add(p []byte) { h.n += copy(h.raw[h.n:], p) }

func (h *hello) timeout() time.Duration {
	return time.Duration(int32(binary.BigEndian.Uint32(h.raw[8:12]))) * time.Millisecond
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
