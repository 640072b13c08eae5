package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// closeNotifyTimeout bounds how long the end of a TLS connection waits for a client that reads
// nothing.
const closeNotifyTimeout = 100 * time.Millisecond

// notTLS is the reply to a client that sends plain RESP to the TLS port.
const notTLS = "-ERR This port speaks TLS only\r\n"

var errHandshake = errors.New("TLS handshake")

// ServeTLS is Serve for TLS clients. ln accepts plain connections. The handshake runs on the
// connection's goroutine, so that a slow client does not delay others. It takes at most
// HandshakeTimeout. A connection counts towards MaxClients from the accept. To change certificates
// at run time, config needs a GetConfigForClient.
func (s *Server) ServeTLS(ln net.Listener, config *tls.Config) error { return s.acceptLoop(ln, config) }

func (l *link) speakTLS(config *tls.Config) {
	l.tls = tls.Server(&l.wire, config)
	l.stream = l.tls
}

func (c *Conn) handshake() error {
	if c.tls == nil {
		return nil
	}
	c.beginHandshake(c.server.cfg.HandshakeTimeout)
	err := c.tls.Handshake()
	if c.endHandshake() {
		return errDraining
	}
	if err != nil {
		c.refuseHandshake(err)
		return fmt.Errorf("%w: %w", errHandshake, err)
	}
	if chains := c.tls.ConnectionState().VerifiedChains; len(chains) > 0 {
		c.certificateName.Store(&chains[0][0].Subject.CommonName)
	}
	return nil
}

// beginHandshake sets the deadline of the handshake. A Read that times out makes crypto/tls give
// up, so only a shutdown may move this deadline.
func (i *interrupts) beginHandshake(timeout time.Duration) {
	i.readMu.Lock()
	defer i.readMu.Unlock()
	i.readUntil(time.Now().Add(timeout))
	i.handshaking = true
	if i.draining {
		i.interruptLocked()
	}
}

// endHandshake ends the handshake and reports whether the server is shutting down.
func (i *interrupts) endHandshake() bool {
	i.readMu.Lock()
	defer i.readMu.Unlock()
	i.handshaking = false
	return i.draining
}

// refuseHandshake ends the stream so that the client can read the reason. The reason is the alert
// that crypto/tls has sent, or notTLS for a client without TLS.
func (c *Conn) refuseHandshake(err error) {
	var header tls.RecordHeaderError
	switch {
	case errors.Is(err, io.EOF):
		return
	case errors.As(err, &header) && header.Conn != nil:
		_, _ = io.WriteString(&c.wire, notTLS)
	}
	c.linger()
}

// closeTLS sends close_notify to a TLS client, so that the client knows that no data is missing. If
// the client reads nothing, closeTLS gives up after closeNotifyTimeout.
func (c *Conn) closeTLS() {
	if c.tls == nil || c.closed.Load() || !c.wmu.TryLock() {
		return
	}
	defer c.wmu.Unlock()
	if !c.wire.failed {
		c.wire.shortenTimeout(closeNotifyTimeout)
		_ = c.tls.CloseWrite() // fails if the connection is broken
	}
}
