package stores

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Link is a TCP proxy in front of a store that plays the network's faults. It begins
// whole. A fault lasts until Heal or another fault takes its place.
type Link struct {
	t    TB
	addr string
	all  sync.WaitGroup // every goroutine

	mu       sync.Mutex // guards what follows; held for no I/O but the listener's
	target   string     // where new connections go
	changed  chan struct{}
	fault    fault
	delay    time.Duration
	listener net.Listener
	pairs    map[*pair]struct{}
	trap     *trap
	closed   bool
}

type fault uint8

const (
	whole       fault = iota
	blackhole         // nothing passes
	refused           // no connections
	dropReplies       // requests pass, replies are lost
)

// pair is a client's connection and the one to the store that belongs to it.
type pair struct {
	client, store *net.TCPConn
	maimed        bool // replies were lost: what comes later belongs to other requests. Guarded by Link.mu
	armed         bool // its next reply is the one to be lost. Guarded by Link.mu
}

// trap waits for a request whose reply is to be lost, or after which a fault begins.
type trap struct {
	text []byte
	next fault // whole = only its reply is lost
	done chan struct{}
}

// NewLink returns a link to the store at target (host:port), closed when the test ends.
func NewLink(t TB, target string) *Link {
	t.Helper()
	l := &Link{t: t, addr: local(FreePort(t)), target: target, changed: make(chan struct{}), pairs: make(map[*pair]struct{})}
	if err := l.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// Addr is where clients connect, the same all the time.
func (l *Link) Addr() string { return l.addr }

// Blackhole stops everything, as a cable that was pulled: connections are accepted
// and stay open, and nothing passes. What was sent meanwhile arrives after Heal.
func (l *Link) Blackhole() { l.set(blackhole, 0) }

// Refuse resets all connections and refuses new ones, as a machine without the store.
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

// Reset resets the connections that are open, once. It is no fault that lasts.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		p.reset()
	}
}

// Retarget leads new connections to another store. Those that are open stay where they
// are, as after a failover that moves an address.
func (l *Link) Retarget(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// Delay lets everything pass late by d, on the way to the store and on the way back.
func (l *Link) Delay(d time.Duration) { l.set(whole, d) }

// DropReplies lets requests pass and loses what the store sends. Heal resets the
// connections on which something was lost.
func (l *Link) DropReplies() { l.set(dropReplies, 0) }

// DropNextReply is DropReplyTo any request.
func (l *Link) DropNextReply() (lost <-chan struct{}) { return l.DropReplyTo("") }

// DropReplyTo waits for a request that contains the text. It is delivered, the store
// answers, and instead of the answer the client sees its connection reset. That
// happens once, and the channel is closed then. It is no fault that lasts.
func (l *Link) DropReplyTo(text string) (lost <-chan struct{}) { return l.setTrap(text, whole) }

// DropRepliesFrom is DropReplies from the first request on that contains the text. The channel
// is closed then.
func (l *Link) DropRepliesFrom(text string) (begun <-chan struct{}) {
	return l.setTrap(text, dropReplies)
}

// BlackholeFrom is Blackhole from the first request on that contains the text, which arrives after Heal. The channel is
// closed when it begins.
func (l *Link) BlackholeFrom(text string) (begun <-chan struct{}) { return l.setTrap(text, blackhole) }

func (l *Link) setTrap(text string, next fault) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trap = &trap{text: []byte(text), next: next, done: make(chan struct{})}
	for p := range l.pairs {
		p.armed = false
	}
	return l.trap.done
}

// Heal ends all faults. New connections are accepted when it returns.
func (l *Link) Heal() {
	if err := l.listen(); err != nil {
		l.t.Errorf("heal the link: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trap = nil
	for p := range l.pairs {
		p.armed = false
		if p.maimed {
			p.reset() // before anything can pass again
		}
	}
	l.setLocked(whole, 0)
}

// Whole reports whether no fault is on, nor one to come.
func (l *Link) Whole() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault == whole && l.trap == nil
}

// Connections returns how many clients are connected.
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

// serve connects a client to the store and passes bytes until either side is done.
func (l *Link) serve(client *net.TCPConn) {
	p := &pair{client: client}
	defer client.Close()
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	store, err := net.Dial("tcp", target)
	if err != nil {
		p.reset() // nobody listens at the store: the client finds a broken connection
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

// pump passes what comes from src on to dst, if pass says so.
func (l *Link) pump(p *pair, dst, src *net.TCPConn, pass func(*pair, []byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !l.hold() {
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
			// The end of one direction is the end of both, for the stores' protocols; but
			// a cable that was pulled does not tell that a side has closed.
			if l.hold() && errors.Is(err, io.EOF) {
				_ = dst.CloseWrite()
				return
			}
			p.reset()
			return
		}
	}
}

// hold waits as long as the fault that is on now asks for. It reports false when
// there is no link any more.
func (l *Link) hold() bool {
	l.mu.Lock()
	delay := l.delay
	l.mu.Unlock()
	if delay > 0 {
		<-time.After(delay)
	}
	for {
		l.mu.Lock()
		f, changed := l.fault, l.changed
		l.mu.Unlock()
		switch f {
		case refused:
			return false
		case blackhole:
			<-changed
		default:
			return true
		}
	}
}

// request looks at bytes on their way to the store.
func (l *Link) request(p *pair, b []byte) bool {
	l.mu.Lock()
	begins := false
	switch {
	case l.trap == nil || !bytes.Contains(b, l.trap.text):
	case l.trap.next != whole:
		begins = true
		close(l.trap.done)
		l.setLocked(l.trap.next, 0)
		l.trap = nil
	default:
		p.armed = true
	}
	l.mu.Unlock()
	return !begins || l.hold()
}

// reply looks at bytes on their way back.
func (l *Link) reply(p *pair, _ []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.armed && l.trap != nil {
		close(l.trap.done)
		l.trap = nil
		p.reset()
		return false
	}
	if l.fault == dropReplies {
		p.maimed = true
		return false
	}
	return true
}

// reset ends both connections with a RST, so that whoever waits for them knows at once.
func (p *pair) reset() {
	for _, c := range []*net.TCPConn{p.client, p.store} {
		if c != nil {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}
