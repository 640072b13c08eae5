package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// farewellTimeout bounds how long the end of a TLS connection waits for a client
// that takes nothing.
const farewellTimeout = 100 * time.Millisecond

// notTLS is what a client is told that speaks plain RESP where TLS is expected.
const notTLS = "-ERR This port speaks TLS only\r\n"

var errHandshake = errors.New("TLS handshake")

// ServeTLS is Serve for clients that speak TLS. ln accepts plain connections: the
// handshake is the connection's own affair, on its own goroutine, so that a slow
// client holds up nobody; until it is done, for Config.HandshakeTimeout at most, the
// connection counts as a client. To change certificates while it serves, config has
// a GetConfigForClient.
func (s *Server) ServeTLS(ln net.Listener, config *tls.Config) error { return s.serve(ln, config) }

// CertificateName is the common name (CN) of the subject of the certificate by which the
// client proved who it is, as Redis' tls-auth-clients-user takes it; "" without TLS,
// without a certificate, or if that was not asked for, and so not verified. It is
// settled before the first command. Any goroutine may call it.
func (c *Conn) CertificateName() string {
	if name := c.certificateName.Load(); name != nil {
		return *name
	}
	return ""
}

// speakTLS makes the connection one that begins with a handshake.
func (c *Conn) speakTLS(config *tls.Config) {
	c.tls = tls.Server(&c.wire, config)
	c.stream = c.tls
}

// handshake does the TLS handshake, if the connection has one.
func (c *Conn) handshake() error {
	if c.tls == nil {
		return nil
	}
	c.beginHandshake()
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

// beginHandshake sets the deadline. To crypto/tls a Read that times out is the end of
// a handshake, so until that is done nothing but a shutdown moves the deadline.
func (c *Conn) beginHandshake() {
	c.park.Lock()
	defer c.park.Unlock()
	c.readUntil(time.Now().Add(c.server.limits.HandshakeTimeout))
	c.shaking = true
	if c.draining {
		c.lookUp()
	}
}

// endHandshake reports whether the server is shutting down.
func (c *Conn) endHandshake() bool {
	c.park.Lock()
	defer c.park.Unlock()
	c.shaking = false
	return c.draining
}

// refuseHandshake lets the client read what was wrong: the alert that crypto/tls has
// sent, or that it should have spoken TLS.
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

// farewell tells a TLS client that this is the end and nothing was cut off on the way,
// as TLS has it. Nobody waits long for one that takes nothing.
func (c *Conn) farewell() {
	if c.tls == nil || c.closed.Load() || !c.wmu.TryLock() {
		return
	}
	defer c.wmu.Unlock()
	if !c.wire.failed {
		c.wire.hurry(farewellTimeout)
		_ = c.tls.CloseWrite() // fails if the connection is broken: then there is nobody to tell
	}
}
