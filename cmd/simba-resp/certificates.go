package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
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
	config  *tls.Config
	subject string
	begins  time.Time
	expires time.Time // the earliest end in the chain
	ca      time.Time // the last end of an authority; zero = no authorities
}

// openCertificates reads the files that c names.
func openCertificates(c *config, log *slog.Logger) (*certificates, error) {
	l, wrong := loadTLS(c)
	if len(wrong) > 0 {
		return nil, wrong
	}
	certs := &certificates{log: log}
	certs.timer = time.AfterFunc(expiryInterval, certs.checkExpiry)
	certs.use(l)
	return certs, nil
}

// reload reads the files that c names. On an error it changes nothing. It also fails if an enabled
// user has no password and requiresPasswords forbids that.
func (certs *certificates) reload(c *config) error {
	l, wrong := loadTLS(c)
	if len(wrong) > 0 {
		return wrong
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

// expire returns when the certificates expire, by setting.
func (certs *certificates) expire() map[string]time.Time {
	l := certs.current.Load()
	all := map[string]time.Time{"tls-cert-file": l.expires}
	if !l.ca.IsZero() {
		all["tls-ca-cert-file"] = l.ca
	}
	return all
}

func (certs *certificates) use(l *tlsFiles) {
	certs.current.Store(l)
	certs.log.Info("TLS certificate in use", "subject", l.subject, "expires", l.expires)
	certs.checkExpiry()
}

// checkExpiry logs a warning if the certificate needs attention, and sets the timer of the next
// check.
func (certs *certificates) checkExpiry() {
	l, now := certs.current.Load(), time.Now()
	if warning := l.warning(now); warning != "" {
		certs.log.Warn(warning, "subject", l.subject, "begins", l.begins, "expires", l.expires)
	}
	certs.timer.Reset(expiryInterval)
}

// warning returns a warning about the certificate as it is at the time now, "" if none is needed.
func (l *tlsFiles) warning(now time.Time) string {
	switch {
	case now.Before(l.begins):
		return "the TLS certificate is not valid yet: clients refuse it"
	case !now.Before(l.expires):
		return "the TLS certificate has expired: clients refuse it"
	case l.expires.Sub(now) < expiryNotice:
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

// loadTLS reads the files that c names. Validate has checked that c names all of them.
func loadTLS(c *config) (*tlsFiles, configErrors) {
	var wrong configErrors
	add := func(name string, err error) {
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	cert, err := readRegular(c.TLSCertFile)
	add("tls-cert-file", err)
	key, err := readRegular(c.TLSKeyFile)
	add("tls-key-file", err)
	var authorities *x509.CertPool // they sign client certificates
	var ca time.Time
	if file := c.TLSCACertFile; file != "" {
		text, err := readRegular(file)
		if err == nil {
			authorities, ca, err = credentials.Authorities(text, file)
		}
		add("tls-ca-cert-file", err)
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	pair, err := credentials.Pair(cert, key)
	if err != nil {
		return nil, configErrors{fmt.Errorf("tls-cert-file: %s with the key %s: %w", c.TLSCertFile, c.TLSKeyFile, err)}
	}
	l := &tlsFiles{
		subject: pair.Leaf.Subject.String(),
		begins:  pair.Leaf.NotBefore,
		expires: credentials.Expires(pair),
		ca:      ca,
		config: &tls.Config{
			Certificates: []tls.Certificate{pair},
			ClientAuth:   clientAuth[c.TLSAuthClients],
			ClientCAs:    authorities,
			MinVersion:   minVersions[c.TLSMinVersion],
			// Resumption would accept clients of authorities that a reload has removed.
			SessionTicketsDisabled: true,
			// By default the first TLS records are small, for browsers that show parts of a page. A
			// client of this server needs a whole reply.
			DynamicRecordSizingDisabled: true,
		},
	}
	return l, nil
}

// readRegular reads a regular file. CONFIG SET can name any path, also that of a device or a pipe
// whose read never ends.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
