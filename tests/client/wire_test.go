package clienttest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

// wires has the connections of one client to the server of a world. Data that is sent during a
// silence arrives after heal, as with TCP, even if the sender has closed the connection. A cut
// loses the data in flight.
type wires struct {
	all sync.WaitGroup // goroutines of the connections

	mu       sync.Mutex    // guards the fields below
	server   *resp.Server  // nil = down
	silent   chan struct{} // closed by heal; nil = no silence
	up, down time.Duration // the delay in each direction
	open     map[*wire]struct{}
	tear     int                  // see tearNext
	torn     map[uint64]time.Time // when replies of SIMBA.NEXT broke, by the tokens of their grants
}

// connect sets the server that new connections reach; nil = the network refuses them.
func (w *wires) connect(s *resp.Server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server = s
}

// cut breaks all connections. New connections succeed.
func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		c.cut()
	}
	clear(w.open)
}

// silence stops all data in both directions, and delays new connections, until heal.
func (w *wires) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent == nil {
		w.silent = make(chan struct{})
	}
}

// heal ends the silence. It cuts frozen connections, like a TCP keepalive.
func (w *wires) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		select {
		case <-c.frozen:
			c.cut()
		default:
		}
	}
	if w.silent != nil {
		close(w.silent)
		w.silent = nil
	}
}

// slow delays requests by up, and replies and notices by down, from now on.
func (w *wires) slow(up, down time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up, w.down = up, down
}

// freeze stops all data on the present connections for ever.
func (w *wires) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		c.freeze()
	}
}

// cutNext and freezeNext are cut and freeze of the connections on which the client has sent
// SIMBA.NEXT.
func (w *wires) cutNext() { w.eachNext(func(c *wire) { c.cut(); delete(w.open, c) }) }

func (w *wires) freezeNext() { w.eachNext(func(c *wire) { c.freeze() }) }

func (w *wires) eachNext(do func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		if c.next {
			do(c)
		}
	}
}

// tearNext breaks the connection in the next reply of SIMBA.NEXT that has a grant, after n bytes; 0 =
// in none.
func (w *wires) tearNext(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tear = n
}

// delayReplies delays all replies and notices on the present connections by d, from now on.
func (w *wires) delayReplies(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		c.late = d
	}
}

// delayRequests delays all requests but SIMBA.NEXT on the present connections by d, from now on.
func (w *wires) delayRequests(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		if !c.next {
			c.lateUp = d
		}
	}
}

func (w *wires) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open)
}

// quiet returns a channel that is closed when the silence ends; nil = no silence.
func (w *wires) quiet() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent
}

// dial is a go-redis Dialer.
func (w *wires) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for q := w.quiet(); q != nil; q = w.quiet() {
		select {
		case <-q:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.openLocked(false)
}

func (w *wires) openLocked(prompt bool) (net.Conn, error) {
	if w.server == nil {
		return nil, syscall.ECONNREFUSED
	}
	client, near := net.Pipe()
	far, served := net.Pipe()
	c := &wire{prompt: prompt, near: near, far: far, lost: make(chan struct{}), frozen: make(chan struct{})}
	c.freeze = sync.OnceFunc(func() {
		if !prompt {
			close(c.frozen)
		}
	})
	c.cut = sync.OnceFunc(func() {
		close(c.lost)
		near.Close()
		far.Close()
	})
	if w.open == nil {
		w.open, w.torn = make(map[*wire]struct{}), make(map[uint64]time.Time)
	}
	w.open[c] = struct{}{}
	s := w.server
	w.all.Go(func() { s.ServeConn(serverEnd{served, w, c}) })
	w.all.Go(func() {
		var both sync.WaitGroup
		both.Go(func() { w.carry(c, far, near, func() time.Duration { return max(w.up, c.lateUp) }) })
		both.Go(func() { w.carry(c, near, far, func() time.Duration { return max(w.down, c.late) }) })
		both.Wait()
		c.cut()
		w.mu.Lock()
		delete(w.open, c)
		w.mu.Unlock()
	})
	return socket{client, c.lost}, nil
}

// dialPromptly is a go-redis Dialer of connections on which only a cut has an effect.
func (w *wires) dialPromptly(context.Context, string, string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.openLocked(true)
}

// serverEnd is the server's end of a connection.
type serverEnd struct {
	net.Conn
	w *wires
	c *wire
}

var grant = regexp.MustCompile(`\r\nacquired\r\n[^%]*\r\ntoken\r\n:(\d+)`)

func (e serverEnd) Write(b []byte) (int, error) {
	e.w.mu.Lock()
	n := e.w.tear
	var grants [][][]byte
	if n != 0 && e.c.next {
		grants = grant.FindAllSubmatch(b, -1)
	}
	for _, g := range grants {
		token, _ := strconv.ParseUint(string(g[1]), 10, 64)
		e.w.torn[token] = time.Now()
		e.w.tear = 0
	}
	e.w.mu.Unlock()
	if grants == nil {
		return e.Conn.Write(b)
	}
	n, _ = e.Conn.Write(b[:n])
	e.c.cut()
	return n, io.ErrClosedPipe
}

// socket is the client's end of a connection. Like one of TCP, it ends with io.EOF, and go-redis sees
// in its pool that it has ended.
type socket struct {
	net.Conn
	lost <-chan struct{}
}

// SyscallConn implements syscall.Conn.
func (s socket) SyscallConn() (syscall.RawConn, error) {
	select {
	case <-s.lost:
		return nil, io.EOF
	default:
		return noData{}, nil
	}
}

type noData struct{ syscall.RawConn }

func (noData) Read(func(uintptr) bool) error { return nil }

func (s socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	return n, asEOF(err)
}

func (s socket) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	return n, asEOF(err)
}

func asEOF(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return io.EOF
	}
	return err
}

// wire is one connection: a relay between a pipe to the client and one to the server.
type wire struct {
	prompt    bool // only a cut has an effect
	near, far net.Conn
	cut       func()
	lost      chan struct{} // closed by cut
	freeze    func()
	frozen    chan struct{} // closed by freeze
	late      time.Duration // how late replies and notices arrive; guarded by wires.mu
	lateUp    time.Duration // how late requests arrive; guarded by wires.mu
	next      bool          // SIMBA.NEXT was sent; guarded by wires.mu
}

// packet is data in flight. Without bytes, it is the end of the connection.
type packet struct {
	due   time.Time
	bytes []byte
}

// carry carries data from one end to the other until an end closes. It calls delay with wires.mu
// locked.
func (w *wires) carry(c *wire, to, from net.Conn, delay func() time.Duration) {
	packets := make(chan packet, 10_000) // the sender must not wait for the receiver
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(packets)
		for buf := make([]byte, 4096); ; {
			n, err := from.Read(buf)
			w.mu.Lock()
			c.next = c.next || bytes.Contains(buf[:n], []byte("simba.next"))
			due := time.Now().Add(delay())
			w.mu.Unlock()
			p := packet{due: due}
			if err == nil {
				p.bytes = append([]byte(nil), buf[:n]...)
			}
			select {
			case packets <- p:
			case <-c.lost:
				return
			}
			if err != nil {
				return
			}
		}
	})
	defer reading.Wait()
	defer from.Close() // ends reading
	for p := range packets {
		if !w.deliver(c, to, p) {
			break
		}
	}
	to.Close()
}

// deliver delivers a packet, and reports whether more packets may follow.
func (w *wires) deliver(c *wire, to net.Conn, p packet) bool {
	if left := time.Until(p.due); left > 0 && !c.prompt {
		select {
		case <-time.After(left):
		case <-c.lost:
			return false
		}
	}
	for q := w.quiet(); q != nil && !c.prompt; q = w.quiet() {
		select {
		case <-q:
		case <-c.lost:
			return false
		}
	}
	select {
	case <-c.frozen:
		<-c.lost
		return false
	default:
	}
	if p.bytes == nil {
		return false
	}
	_, err := to.Write(p.bytes)
	return err == nil
}
