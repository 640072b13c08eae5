package simulation

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// network connects the members of a simulated cluster by connections that behave as those of TCP.
// What a member sends while a link is cut arrives after the link is whole again, unless the
// connection has broken by then. A frozen member neither reads nor writes.
type network struct {
	start time.Time
	seed  uint64

	mu        sync.Mutex // protects all fields of the network and of its connections
	listeners map[string]*fakeListener
	links     map[[2]int]*fakeLink // by the indexes of the members: from, to
	frozen    map[int]bool
	conns     []*fakeConn                       // the dialling ends of all connections
	message   func(from int, m *raftpb.Message) // is called for each message of raft but MsgApp; must not block
}

// fakeLink is one direction between two members.
type fakeLink struct {
	cut  bool
	cuts int           // counts the cuts
	late time.Duration // of each packet, at most
}

func newNetwork(seed uint64, size int) *network {
	n := &network{
		start: time.Now(), seed: seed, listeners: map[string]*fakeListener{}, links: map[[2]int]*fakeLink{},
		frozen: map[int]bool{},
	}
	for a := range size {
		for b := range size {
			n.links[[2]int{a, b}] = &fakeLink{}
		}
	}
	return n
}

func addrOf(member int) string { return fmt.Sprintf("10.0.0.%d:7380", member+1) }

type fakeListener struct {
	net    *network
	member int
	queue  chan *fakeConn
	ended  chan struct{}
	end    sync.Once
}

func (n *network) listen(member int) *fakeListener {
	l := &fakeListener{net: n, member: member, queue: make(chan *fakeConn, 1000), ended: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[addrOf(member)] = l
	return l
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Close() error {
	l.end.Do(func() {
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		close(l.ended)
		if addr := addrOf(l.member); l.net.listeners[addr] == l {
			delete(l.net.listeners, addr)
		}
	})
	return nil
}

func (l *fakeListener) Addr() net.Addr { return fakeAddr(addrOf(l.member)) }

type fakeAddr string

func (fakeAddr) Network() string  { return "tcp" }
func (a fakeAddr) String() string { return string(a) }

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// dial opens a connection from a member to an address.
func (n *network) dial(ctx context.Context, from int, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	to := 0
	for addrOf(to) != addr {
		to++
	}
	n.mu.Lock()
	pair := [2]int{from, to}
	rng := n.rngOf(from, to, 0)
	latency := n.latencyLocked(rng, from, to) + n.latencyLocked(rng, to, from)
	n.mu.Unlock()
	timer := time.NewTimer(latency)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
		}
		n.mu.Lock()
		if n.links[pair].cut || n.links[[2]int{to, from}].cut || n.frozen[from] {
			n.mu.Unlock()
			timer.Reset(500*time.Millisecond + time.Duration(rng.IntN(1e6)))
			continue
		}
		l := n.listeners[addr]
		if l == nil {
			n.mu.Unlock()
			return nil, errRefused
		}
		near, far := n.pairLocked(from, to)
		n.mu.Unlock()
		select {
		case l.queue <- far:
			return near, nil
		case <-l.ended:
			return nil, errRefused
		}
	}
}

// latencyLocked draws how long a packet takes. No two packets take the same time.
func (n *network) latencyLocked(rng *rand.Rand, from, to int) time.Duration {
	d := 50*time.Microsecond + time.Duration(rng.Int64N(int64(200*time.Microsecond)))
	if late := n.links[[2]int{from, to}].late; late > 0 {
		d += time.Duration(rng.Int64N(int64(late)))
	}
	return d
}

// rngOf returns the random generator of a stream of a kind that begins now. A member opens several
// connections at one instant, in any order.
func (n *network) rngOf(from, to int, kind byte) *rand.Rand {
	return rand.New(rand.NewPCG(n.seed, uint64(time.Since(n.start))<<12|uint64(from)<<8|uint64(to)<<4|uint64(kind)))
}

func (n *network) pairLocked(from, to int) (near, far *fakeConn) {
	a := newFakeStream(n, n.rngOf(from, to, 0), from, to)
	b := newFakeStream(n, n.rngOf(to, from, 0), to, from)
	port := 10000 + len(n.conns)
	dialler := fakeAddr(fmt.Sprintf("10.0.0.%d:%d", from+1, port))
	near = &fakeConn{net: n, at: from, in: b, out: a, local: dialler, remote: fakeAddr(addrOf(to))}
	far = &fakeConn{net: n, at: to, in: a, out: b, local: fakeAddr(addrOf(to)), remote: dialler}
	near.peer, far.peer = far, near
	n.conns = append(n.conns, near)
	return near, far
}

// fakeStream is one direction of a connection.
type fakeStream struct {
	net      *network
	rng      *rand.Rand
	from, to int
	chunks   []chunk
	size     int
	last     time.Time     // when the last chunk arrives
	changed  chan struct{} // closed at each change
}

type chunk struct {
	due  time.Time
	data []byte // empty = the end
}

// window is how many bytes may be on their way.
const window = 256 << 10

func newFakeStream(n *network, rng *rand.Rand, from, to int) *fakeStream {
	return &fakeStream{net: n, rng: rng, from: from, to: to, changed: make(chan struct{})}
}

func (s *fakeStream) changeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *fakeStream) stalledLocked() bool {
	n := s.net
	return n.links[[2]int{s.from, s.to}].cut || n.frozen[s.from] || n.frozen[s.to]
}

func (s *fakeStream) addLocked(data []byte) {
	due := time.Now().Add(s.net.latencyLocked(s.rng, s.from, s.to))
	if !due.After(s.last) {
		due = s.last.Add(1)
	}
	s.last = due
	s.chunks = append(s.chunks, chunk{due, data})
	s.size += len(data)
	s.changeLocked()
}

// resumeLocked sends again what a stalled stream has.
func (s *fakeStream) resumeLocked() {
	if s.stalledLocked() || len(s.chunks) == 0 {
		return
	}
	first := time.Now().Add(time.Duration(s.rng.Int64N(int64(time.Second))))
	for i := range s.chunks {
		if at := first.Add(time.Duration(i)); s.chunks[i].due.Before(at) {
			s.chunks[i].due = at
		}
	}
	s.last = s.chunks[len(s.chunks)-1].due
	s.changeLocked()
}

// fakeConn is one end of a connection.
type fakeConn struct {
	net           *network
	at            int // the member
	peer          *fakeConn
	in, out       *fakeStream
	local, remote fakeAddr
	kind          byte   // of the connection, which the first bytes have; 0 = they are not on their way yet
	part          []byte // the begin of a message that is not complete yet

	err           error // the connection has ended here
	readDeadline  time.Time
	writeDeadline time.Time
}

func (c *fakeConn) LocalAddr() net.Addr  { return c.local }
func (c *fakeConn) RemoteAddr() net.Addr { return c.remote }

func (c *fakeConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *fakeConn) SetReadDeadline(t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.readDeadline = t
	c.in.changeLocked()
	return nil
}

func (c *fakeConn) SetWriteDeadline(t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.writeDeadline = t
	c.out.changeLocked()
	return nil
}

// wait releases mu until the stream changes, or a time.
func (c *fakeConn) waitLocked(s *fakeStream, until time.Time) {
	changed := s.changed
	c.net.mu.Unlock()
	defer c.net.mu.Lock()
	if until.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func (c *fakeConn) Read(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for {
		s, now := c.in, time.Now()
		until := c.readDeadline
		switch {
		case c.err != nil:
			return 0, c.err
		case len(s.chunks) > 0 && !s.stalledLocked():
			first := &s.chunks[0]
			if !first.due.After(now) {
				if len(first.data) == 0 {
					return 0, io.EOF
				}
				k := copy(p, first.data)
				s.size -= k
				if first.data = first.data[k:]; len(first.data) == 0 {
					s.chunks = s.chunks[1:]
				}
				s.changeLocked()
				return k, nil
			}
			if until.IsZero() || first.due.Before(until) {
				until = first.due
			}
		}
		if d := c.readDeadline; !d.IsZero() && !d.After(now) {
			return 0, os.ErrDeadlineExceeded
		}
		c.waitLocked(s, until)
	}
}

func (c *fakeConn) Write(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for {
		switch d := c.writeDeadline; {
		case c.err != nil:
			return 0, c.err
		case !d.IsZero() && !d.After(time.Now()):
			return 0, os.ErrDeadlineExceeded
		case c.out.size < window && !c.net.frozen[c.at]:
			switch {
			case c.kind == 0 && c.peer.kind == 0 && len(p) > 8:
				c.kind = p[8]
				c.out.rng = c.net.rngOf(c.at, c.peer.at, c.kind)
				c.in.rng = c.net.rngOf(c.peer.at, c.at, c.kind)
			case c.kind == kindOfMessages:
				c.watchLocked(p)
			}
			if len(p) > 0 {
				c.out.addLocked(append([]byte(nil), p...))
			}
			if up := c.net.listeners[addrOf(c.peer.at)] != nil; up && c.peer.err != nil {
				c.peer.breakLocked(nil, false) // the machine knows no such connection
			}
			return len(p), nil
		}
		c.waitLocked(c.out, c.writeDeadline)
	}
}

// kindOfMessages is the kind of the connections for raft's messages but MsgApp.
const kindOfMessages = 1

// watchLocked passes the messages in sent bytes to network.message.
func (c *fakeConn) watchLocked(p []byte) {
	c.part = append(c.part, p...)
	for len(c.part) >= 4 {
		size := 4 + int(binary.BigEndian.Uint32(c.part))
		if len(c.part) < size {
			return
		}
		m := new(raftpb.Message)
		must(0, proto.Unmarshal(c.part[4:size], m))
		c.net.message(c.at, m)
		c.part = c.part[size:]
	}
}

func (c *fakeConn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.err != nil {
		return net.ErrClosed
	}
	c.err = net.ErrClosed
	c.out.addLocked(nil)
	c.in.changeLocked()
	return nil
}

// breakLocked ends a connection at one end. The other end learns of it by a packet.
func (c *fakeConn) breakLocked(err error, silent bool) {
	if c.err == nil {
		c.err = err
		c.in.changeLocked()
		c.out.changeLocked()
	}
	if !silent && c.peer.err == nil && !c.out.stalledLocked() {
		time.AfterFunc(c.net.latencyLocked(c.out.rng, c.at, c.peer.at), func() {
			c.net.mu.Lock()
			defer c.net.mu.Unlock()
			c.peer.breakLocked(syscall.ECONNRESET, true)
		})
	}
}

// eachLocked calls do for both ends of the connections of some members.
func (n *network) eachLocked(of func(a, b int) bool, do func(*fakeConn)) {
	left := n.conns[:0]
	for _, c := range n.conns {
		if c.err != nil && c.peer.err != nil {
			continue
		}
		left = append(left, c)
		if of(c.at, c.peer.at) {
			do(c)
			do(c.peer)
		}
	}
	n.conns = left
}

// cut cuts the link from a member to another one. Each connection breaks after some seconds, at each
// end at a time of its own.
func (n *network) cut(from, to int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[[2]int{from, to}]
	if l.cut || from == to {
		return
	}
	l.cut = true
	l.cuts++
	cuts := l.cuts
	n.eachLocked(between(from, to), func(c *fakeConn) {
		time.AfterFunc(3*time.Second+time.Duration(c.out.rng.Int64N(int64(4*time.Second))), func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			if l.cut && l.cuts == cuts {
				c.breakLocked(syscall.ETIMEDOUT, false)
			}
		})
	})
}

func between(a, b int) func(int, int) bool {
	return func(x, y int) bool { return x == a && y == b || x == b && y == a }
}

// mend makes a link whole.
func (n *network) mend(from, to int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[[2]int{from, to}]
	if !l.cut {
		return
	}
	l.cut = false
	n.resumeLocked(between(from, to))
}

func (n *network) resumeLocked(of func(a, b int) bool) {
	n.eachLocked(of, func(c *fakeConn) {
		if c.err != nil {
			c.breakLocked(c.err, false)
		} else {
			c.out.resumeLocked()
		}
	})
}

func (n *network) mendAll() {
	for pair := range n.links {
		n.mend(pair[0], pair[1])
	}
}

func (n *network) setLate(from, to int, late time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[[2]int{from, to}].late = late
}

func (n *network) freeze(member int, frozen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen[member] = frozen
	if !frozen {
		n.resumeLocked(func(a, b int) bool { return a == member || b == member })
	}
}

// kill ends all connections of a member whose process has ended. If the machine has lost its power,
// the others do not learn of it.
func (n *network) kill(member int, power bool) {
	n.mu.Lock()
	l := n.listeners[addrOf(member)]
	delete(n.frozen, member)
	n.eachLocked(func(a, b int) bool { return a == member || b == member }, func(c *fakeConn) {
		if c.at == member {
			c.breakLocked(syscall.ECONNABORTED, power)
		} else if power {
			time.AfterFunc(3*time.Second+time.Duration(c.out.rng.Int64N(int64(4*time.Second))), func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				c.breakLocked(syscall.ETIMEDOUT, true)
			})
		}
	})
	n.mu.Unlock()
	if l != nil {
		l.Close()
	}
}
