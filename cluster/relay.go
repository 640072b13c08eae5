package cluster

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// relayTimeout bounds a handshake, and the wait for what a client sends first.
	relayTimeout = 15 * time.Second
	// vanishedTime is how long a client may acknowledge or read nothing.
	vanishedTime = 11 * time.Second
	// lingerTime is how long a member reads on after it has sent the last bytes. If it closed a socket
	// with unread bytes, the client might lose these last bytes.
	lingerTime  = 500 * time.Millisecond
	relayBuffer = 8 << 10

	noLeader = "-TRYAGAIN the cluster has no leader; try again\r\n"
)

// Front returns a listener whose Accept returns only the clients that this member serves itself, in
// the term of a Lead. It passes the others on to the leader. Then it ends TLS itself, if config is not
// nil. Close of the Member ends their connections. It passes on at most limit clients of this listener
// at a time, and closes more.
func (m *Member) Front(ln net.Listener, config *tls.Config, limit int) net.Listener {
	return &front{
		Listener: ln, tls: config, serves: m.Serves, leader: m.leaderContext, forward: m.forward,
		running: &m.running, slots: make(chan struct{}, limit),
	}
}

type front struct {
	net.Listener
	tls     *tls.Config // nil = plain
	serves  func() bool
	leader  func() context.Context // ends when the leader changes
	forward func(context.Context, client) (net.Conn, error)
	running *sync.WaitGroup
	slots   chan struct{} // has an element for each client that is passed on
}

func (f *front) Accept() (net.Conn, error) {
	for {
		nc, err := f.Listener.Accept()
		if err != nil || f.serves() {
			return nc, err
		}
		select {
		case f.slots <- struct{}{}:
			f.running.Go(func() { f.pass(nc); <-f.slots })
		default:
			nc.Close()
		}
	}
}

// pass serves a client until its connection ends, or there is another leader.
func (f *front) pass(nc net.Conn) {
	defer nc.Close()
	ctx, raw := f.leader(), nc
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	if tcp, ok := nc.(*net.TCPConn); ok {
		if control, err := tcp.SyscallConn(); err == nil {
			_ = endStalled(control, vanishedTime) // if it fails, the kernel notices later
		}
	}
	c := client{nc.LocalAddr().Network(), nc.RemoteAddr().String(), nc.LocalAddr().String(), ""}
	if f.tls != nil {
		secured := tls.Server(nc, f.tls)
		shaking, cancel := context.WithTimeout(ctx, relayTimeout)
		defer cancel()
		if secured.HandshakeContext(shaking) != nil {
			linger(nc) // so that the client can read why
			return
		}
		if chains := secured.ConnectionState().VerifiedChains; len(chains) > 0 {
			c.CertificateName = chains[0][0].Subject.CommonName
		}
		nc = secured
	}
	leader, err := f.forward(ctx, c)
	if err != nil {
		refuse(nc)
		return
	}
	defer context.AfterFunc(ctx, func() { abort(leader) })()
	join(nc, leader)
}

// refuse tells a client that there is no leader, once it has sent something.
func refuse(nc net.Conn) {
	_ = nc.SetDeadline(time.Now().Add(relayTimeout))
	if n, _ := nc.Read(make([]byte, 1)); n == 0 {
		return
	}
	if _, err := io.WriteString(nc, noLeader); err == nil {
		linger(nc)
	}
}

// join copies bytes between a client and the leader until one of them ends.
func join(client, leader net.Conn) {
	var sending sync.WaitGroup
	sending.Go(func() {
		if pump(leader, client) != nil || closeWrite(leader) != nil { // else the leader may still reply
			abort(leader)
		}
	})
	_ = pump(client, leader)
	abort(leader)
	linger(client)
	sending.Wait()
}

func pump(dst io.Writer, src io.Reader) error {
	// Without their other methods, so that io uses this buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, relayBuffer))
	return err
}

// linger ends the stream to the other side, and reads until it closes the connection.
func linger(nc net.Conn) {
	_ = closeWrite(nc)
	_ = nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, nc)
}

func closeWrite(nc net.Conn) error {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
