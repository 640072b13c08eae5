package stores

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Link is a TCP proxy in front of a store. It simulates network faults. A new Link has no fault. A
// fault lasts until Heal or the next fault.
type Link struct {
	t    TB
	addr string
	all  sync.WaitGroup // all goroutines of the link

	mu       sync.Mutex // guards the fields below; never held during I/O, except to open listener
	target   string     // the store's address for new connections
	changed  chan struct{}
	fault    fault
	delay    time.Duration
	listener net.Listener
	pairs    map[*pair]struct{}
	traps    [faults]*trap // by trap.next
	closed   bool
}

type fault uint8

const (
	whole       fault = iota
	blackhole         // no bytes are passed on
	refused           // connections are reset and refused
	dropReplies       // requests are passed on, replies are dropped
	stalled           // of one connection: no bytes are passed on
	faults
)

// pair is a client's connection to the link, and the connection to the store that the link opened
// for this client.
type pair struct {
	client, store *net.TCPConn
	// replyDropped means that the link has dropped a reply, so the connection cannot be used again.
	// Guarded by Link.mu.
	replyDropped bool
	armed        bool // the link must drop the next reply; guarded by Link.mu
	stalled      bool // guarded by Link.mu
}

// trap waits for a request that contains text. Then the link drops the reply, or starts a fault.
type trap struct {
	text []byte // in lower case
	next fault  // the fault to start; whole = drop only the reply
	done chan struct{}
}

// NewLink returns a link to the store at target (host:port). The link closes when the test ends.
func NewLink(t TB, target string) *Link {
	t.Helper()
	l := &Link{t: t, addr: local(FreePort(t)), target: target, changed: make(chan struct{}), pairs: make(map[*pair]struct{})}
	if err := l.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// Addr returns the address for clients, which never changes.
func (l *Link) Addr() string { return l.addr }

// Blackhole stops all traffic, like a pulled cable. The link accepts connections and keeps them
// open, but passes nothing on. Requests and replies that are sent meanwhile arrive after Heal.
func (l *Link) Blackhole() { l.set(blackhole, 0) }

// Refuse resets all connections and refuses new ones, like a machine on which no store runs.
func (l *Link) Refuse() {
	l.set(refused, 0)
	l.mu.Lock()
	listener := l.listener
	l.listener = nil
	l.mu.Unlock()
	if listener != nil {
		listener.Close()
	}
	l.Reset()
}

// Reset resets the open connections once.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		p.reset()
	}
}

// Retarget directs new connections to another store, as a failover that moves an address. Open
// connections still lead to the earlier store.
func (l *Link) Retarget(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// Delay delays all traffic by d in each direction.
func (l *Link) Delay(d time.Duration) { l.set(whole, d) }

// DropReplies passes requests on and drops all replies. Heal resets the connections whose replies
// were dropped.
func (l *Link) DropReplies() { l.set(dropReplies, 0) }

// DropNextReply is DropReplyTo for any request.
func (l *Link) DropNextReply() (lost <-chan struct{}) { return l.DropReplyTo("") }

// DropReplyTo drops the reply to the first request that contains the text. The store gets the
// request, but the link resets the connection when the store replies. Then the link closes lost.
func (l *Link) DropReplyTo(text string) (lost <-chan struct{}) { return l.setTrap(text, whole) }

// DropRepliesFrom makes DropReplies begin at the first request that contains the text. The link
// closes begun when the fault begins.
func (l *Link) DropRepliesFrom(text string) (begun <-chan struct{}) {
	return l.setTrap(text, dropReplies)
}

// BlackholeFrom makes Blackhole begin at the first request that contains the text. That request
// arrives after Heal. The link closes begun when the fault begins.
func (l *Link) BlackholeFrom(text string) (begun <-chan struct{}) { return l.setTrap(text, blackhole) }

// StallFrom stops all traffic of one connection: that of the first request that contains the text. That
// request arrives after Heal. The link closes begun when it has come.
func (l *Link) StallFrom(text string) (begun <-chan struct{}) { return l.setTrap(text, stalled) }

// setTrap replaces an earlier trap for the same fault. The case of letters in text does not matter.
func (l *Link) setTrap(text string, next fault) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &trap{text: bytes.ToLower([]byte(text)), next: next, done: make(chan struct{})}
	l.traps[next] = t
	if next == whole {
		for p := range l.pairs {
			p.armed = false
		}
	}
	return t.done
}

// Heal ends all faults. When it returns, the link accepts new connections.
func (l *Link) Heal() {
	if err := l.listen(); err != nil {
		l.t.Errorf("heal the link: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.traps = [faults]*trap{}
	for p := range l.pairs {
		p.armed, p.stalled = false, false
		if p.replyDropped {
			p.reset() // before anything else is passed on
		}
	}
	l.setLocked(whole, 0)
}

// Whole reports whether the link has no fault and no trap. DropReplyTo and the methods whose names end
// with From set a trap, which waits for a request.
func (l *Link) Whole() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault == whole && l.traps == [faults]*trap{}
}

// Connections returns the number of connected clients.
func (l *Link) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pairs)
}

func (l *Link) set(f fault, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(f, delay)
}

func (l *Link) setLocked(f fault, delay time.Duration) {
	l.fault, l.delay = f, delay
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) listen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil || l.closed {
		return nil
	}
	listener, err := listen(l.addr)
	if err != nil {
		return err
	}
	l.listener = listener
	l.all.Go(func() { l.accept(listener) })
	return nil
}

func (l *Link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Refuse()
	l.all.Wait()
}

func (l *Link) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		l.all.Go(func() { l.serve(c.(*net.TCPConn)) })
	}
}

// serve connects a client to the store and passes bytes until either side ends.
func (l *Link) serve(client *net.TCPConn) {
	p := &pair{client: client}
	defer client.Close()
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	store, err := net.Dial("tcp", target)
	if err != nil {
		p.reset() // the store does not listen
		return
	}
	p.store = store.(*net.TCPConn)
	defer store.Close()
	l.mu.Lock()
	if l.fault == refused {
		l.mu.Unlock()
		p.reset()
		return
	}
	l.pairs[p] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.pairs, p)
		l.mu.Unlock()
	}()
	var both sync.WaitGroup
	both.Go(func() { l.pump(p, p.store, p.client, l.request) })
	both.Go(func() { l.pump(p, p.client, p.store, l.reply) })
	both.Wait()
}

// pump passes bytes from src to dst, if pass returns true for them.
func (l *Link) pump(p *pair, dst, src *net.TCPConn, pass func(*pair, []byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !l.hold(p) {
				p.reset()
				return
			}
			if pass(p, buf[:n]) {
				if _, err := dst.Write(buf[:n]); err != nil {
					p.reset()
					return
				}
			}
		}
		if err != nil {
			// After an orderly close, close the other side too. During Blackhole, hold delays that
			// until Heal.
			if l.hold(p) && errors.Is(err, io.EOF) {
				_ = dst.CloseWrite()
				return
			}
			p.reset()
			return
		}
	}
}

// hold waits for the link's delay, and while the link blocks the traffic of a pair. It returns false if
// the link refuses connections.
func (l *Link) hold(p *pair) bool {
	l.mu.Lock()
	delay := l.delay
	l.mu.Unlock()
	if delay > 0 {
		<-time.After(delay)
	}
	for {
		l.mu.Lock()
		f, changed := l.fault, l.changed
		stops := f == blackhole || p.stalled
		l.mu.Unlock()
		switch {
		case f == refused:
			return false
		case stops:
			<-changed
		default:
			return true
		}
	}
}

// request handles bytes from the client, and reports whether to pass them to the store.
func (l *Link) request(p *pair, b []byte) bool {
	l.mu.Lock()
	begins := false
	for _, t := range l.traps {
		switch {
		case t == nil || !bytes.Contains(bytes.ToLower(b), t.text):
			continue
		case t.next == whole:
			p.armed = true
			continue
		case t.next == stalled:
			p.stalled = true
		default:
			l.setLocked(t.next, 0)
		}
		begins = true
		close(t.done)
		l.traps[t.next] = nil
	}
	l.mu.Unlock()
	return !begins || l.hold(p)
}

// reply handles bytes from the store, and reports whether to pass them to the client.
func (l *Link) reply(p *pair, _ []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.traps[whole]; p.armed && t != nil {
		close(t.done)
		l.traps[whole] = nil
		p.reset()
		return false
	}
	if l.fault == dropReplies {
		p.replyDropped = true
		return false
	}
	return true
}

// reset ends both connections with a RST, so that client and store notice at once.
func (p *pair) reset() {
	for _, c := range []*net.TCPConn{p.client, p.store} {
		if c != nil {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}
