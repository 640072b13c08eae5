package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/credentials"
)

const (
	// expiryNotice is the remaining life of the certificate below which the log warns.
	expiryNotice = 14 * 24 * time.Hour
	// expiryInterval is the time between two checks of the expiry.
	expiryInterval = 24 * time.Hour
)

// certificates holds the server's certificate and the rules for client certificates. A reload
// applies to new connections only. It is safe for concurrent use.
type certificates struct {
	log     *slog.Logger
	current atomic.Pointer[tlsFiles]
	timer   *time.Timer // of the next expiry check
}

// tlsFiles is the content of the TLS files of one configuration.
type tlsFiles struct {
	config *tls.Config
	expire map[string]time.Time // when the certificates expire, by setting
}

func (l *tlsFiles) leaf() *x509.Certificate { return l.config.Certificates[0].Leaf }

// expires returns when the certificate, or one above it in the chain, expires.
func (l *tlsFiles) expires() time.Time { return l.expire["tls-cert-file"] }

// openCertificates reads the files that c names.
func openCertificates(c *config, log *slog.Logger) (*certificates, error) {
	l, err := loadTLS(c)
	if err != nil {
		return nil, err
	}
	certs := &certificates{log: log}
	certs.timer = time.AfterFunc(expiryInterval, certs.checkExpiry)
	certs.use(l)
	return certs, nil
}

// reload reads the files that c names. On an error it changes nothing. It also fails if an enabled
// user has no password and requiresPasswords forbids that.
func (certs *certificates) reload(c *config) error {
	l, err := loadTLS(c)
	if err != nil {
		return err
	}
	if err := c.users.Protect(c.requiresPasswords()); err != nil {
		return err
	}
	certs.use(l)
	return nil
}

func (certs *certificates) close() { certs.timer.Stop() }

// serverConfig returns a configuration for resp.Server.ServeTLS that follows each reload.
func (certs *certificates) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return certs.current.Load().config, nil },
	}
}

func (certs *certificates) use(l *tlsFiles) {
	certs.current.Store(l)
	certs.log.Info("TLS certificate in use", "subject", l.leaf().Subject.String(), "expires", l.expires())
	certs.checkExpiry()
}

// checkExpiry logs a warning if the certificate needs attention, and sets the timer of the next
// check.
func (certs *certificates) checkExpiry() {
	l, now := certs.current.Load(), time.Now()
	if warning := l.warning(now); warning != "" {
		certs.log.Warn(warning, "subject", l.leaf().Subject.String(), "begins", l.leaf().NotBefore, "expires", l.expires())
	}
	certs.timer.Reset(expiryInterval)
}

// warning returns a warning about the certificate as it is at the time now, "" if none is needed.
func (l *tlsFiles) warning(now time.Time) string {
	switch {
	case now.Before(l.leaf().NotBefore):
		return "the TLS certificate is not valid yet: clients refuse it"
	case !now.Before(l.expires()):
		return "the TLS certificate has expired: clients refuse it"
	case l.expires().Sub(now) < expiryNotice:
		return "the TLS certificate expires soon"
	}
	return ""
}

var clientAuth = map[string]tls.ClientAuthType{
	authNo:       tls.NoClientCert,
	authOptional: tls.VerifyClientCertIfGiven,
	authYes:      tls.RequireAndVerifyClientCert,
}

var minVersions = map[string]uint16{version12: tls.VersionTLS12, version13: tls.VersionTLS13}

// loadTLS reads the files that c names. It returns nil if c does not name them.
func loadTLS(c *config) (*tlsFiles, error) {
	if c.TLSAddr == "" || c.TLSCertFile == "" || c.TLSKeyFile == "" {
		return nil, nil
	}
	// CONFIG SET can name any path, also that of a device or a pipe whose read never ends.
	file := func(setting, path string) credentials.File {
		return credentials.File{Setting: setting, Path: path, Regular: true}
	}
	config, expire, err := credentials.TLS(file("tls-ca-cert-file", c.TLSCACertFile), file("tls-cert-file", c.TLSCertFile), file("tls-key-file", c.TLSKeyFile), "")
	if err != nil {
		return nil, err
	}
	announced, _ := peers(c.ClusterAnnounce) // Validate reports its errors
	if self := find(announced, c.ClusterName); self != nil && c.onlyTLS() {
		host, _, _ := net.SplitHostPort(self.Addr)
		if err := config.Certificates[0].Leaf.VerifyHostname(host); err != nil {
			return nil, credentials.Errors{fmt.Errorf("cluster-announce: clients would refuse %s at %s: %w", c.TLSCertFile, self.Addr, err)}
		}
	}
	config.ClientAuth, config.ClientCAs = clientAuth[c.TLSAuthClients], config.RootCAs
	config.MinVersion = minVersions[c.TLSMinVersion]
	// Resumption would accept clients of authorities that a reload has removed.
	config.SessionTicketsDisabled = true
	// By default the first TLS records are small, for browsers that show parts of a page. A client of
	// this server needs a whole reply.
	config.DynamicRecordSizingDisabled = true
	return &tlsFiles{config, expire}, nil
}
