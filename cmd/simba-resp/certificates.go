package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// expiryNotice is how long before the certificate expires the log begins to say so;
	// it is looked at every expiryEvery.
	expiryNotice = 14 * 24 * time.Hour
	expiryEvery  = 24 * time.Hour

	// maxPEM is far more than any chain or set of authorities has.
	maxPEM = 1 << 20
)

// certificates is what the server shows to TLS clients, and what it asks them for. It
// can be read again while the server runs: new connections get the new one, those that
// are there stay as they are. Safe for concurrent use.
type certificates struct {
	log     *slog.Logger
	current atomic.Pointer[loaded]

	mu     sync.Mutex  // protects this group
	remind *time.Timer // of the next look; nil = closed
}

// loaded is what was read from the files of one configuration.
type loaded struct {
	config  *tls.Config
	subject string
	begins  time.Time
	expires time.Time // the first of the chain
}

// openCertificates reads the files that c names.
func openCertificates(c *config, log *slog.Logger) (*certificates, error) {
	l, wrong := loadTLS(c)
	if len(wrong) > 0 {
		return nil, wrong
	}
	certs := &certificates{log: log}
	certs.remind = time.AfterFunc(expiryEvery, certs.look)
	certs.use(l)
	return certs, nil
}

// reload reads the files that c names, and changes nothing if anything is wrong with them, or
// if c asks for no certificate where users are on without a password.
func (certs *certificates) reload(c *config) error {
	l, wrong := loadTLS(c)
	if len(wrong) > 0 {
		return wrong
	}
	if err := c.users.Protect(c.protectsUsers()); err != nil {
		return err
	}
	certs.use(l)
	return nil
}

// close ends the reminders.
func (certs *certificates) close() {
	certs.mu.Lock()
	defer certs.mu.Unlock()
	certs.remind.Stop()
	certs.remind = nil
}

// serverConfig is for resp.Server.ServeTLS: it always leads to what is current.
func (certs *certificates) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return certs.current.Load().config, nil },
	}
}

// expires is when the certificate does, or an earlier one of its chain.
func (certs *certificates) expires() time.Time { return certs.current.Load().expires }

func (certs *certificates) use(l *loaded) {
	certs.current.Store(l)
	certs.log.Info("TLS certificate in use", "subject", l.subject, "expires", l.expires)
	certs.look()
}

// look says what an operator should do about the certificate, and when it will look
// again: a timer, so that nobody waits for it.
func (certs *certificates) look() {
	l, now := certs.current.Load(), time.Now()
	if warning := l.warning(now); warning != "" {
		certs.log.Warn(warning, "subject", l.subject, "begins", l.begins, "expires", l.expires)
	}
	certs.mu.Lock()
	defer certs.mu.Unlock()
	if certs.remind != nil {
		certs.remind.Reset(expiryEvery)
	}
}

// warning is what is to be said about the certificate at that time, "" = nothing.
func (l *loaded) warning(now time.Time) string {
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

// clientAuth are the words of --tls-auth-clients.
var clientAuth = map[string]tls.ClientAuthType{
	authNo:       tls.NoClientCert,
	authOptional: tls.VerifyClientCertIfGiven,
	authYes:      tls.RequireAndVerifyClientCert,
}

// minVersions are the words of --tls-min-version.
var minVersions = map[string]uint16{version12: tls.VersionTLS12, version13: tls.VersionTLS13}

// loadTLS reads the files that c names, of which Validate has found that they are named.
func loadTLS(c *config) (*loaded, faults) {
	pair, wrong := loadPair(c.TLSCertFile, c.TLSKeyFile)
	authorities, err := loadAuthorities(c.TLSCACertFile)
	if err != nil {
		wrong = append(wrong, fmt.Errorf("tls-ca-cert-file: %w", err))
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	l := &loaded{
		subject: pair.Leaf.Subject.String(),
		begins:  pair.Leaf.NotBefore,
		expires: pair.Leaf.NotAfter,
		config: &tls.Config{
			Certificates: []tls.Certificate{pair},
			ClientAuth:   clientAuth[c.TLSAuthClients],
			ClientCAs:    authorities,
			MinVersion:   minVersions[c.TLSMinVersion],
			// A connection of a lock client is long: to resume one saves little, and would let in
			// again whom other authorities than today's had let in.
			SessionTicketsDisabled: true,
			// Small records at the beginning are for browsers; a reply is of use as a whole only.
			DynamicRecordSizingDisabled: true,
		},
	}
	for _, der := range pair.Certificate[1:] {
		if above, err := x509.ParseCertificate(der); err == nil && above.NotAfter.Before(l.expires) {
			l.expires = above.NotAfter
		}
	}
	return l, nil
}

// loadPair reads the server's certificate, with those between it and the authority, and its key.
func loadPair(certFile, keyFile string) (pair tls.Certificate, wrong faults) {
	cert, err := readPEM(certFile)
	if err != nil {
		wrong = append(wrong, fmt.Errorf("tls-cert-file: %w", err))
	}
	key, err := readPEM(keyFile)
	if err != nil {
		wrong = append(wrong, fmt.Errorf("tls-key-file: %w", err))
	}
	if len(wrong) > 0 {
		return pair, wrong
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		wrong = append(wrong, fmt.Errorf("tls-cert-file: %s with the key %s: %w", certFile, keyFile, err))
	}
	return pair, wrong
}

// loadAuthorities reads who signs the certificates of clients; nil if there is no file.
func loadAuthorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return pool, nil
}

// readPEM reads a small file. A path may come from CONFIG SET: what has no end, or keeps
// its reader waiting, is none.
func readPEM(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err == nil && len(text) > maxPEM {
		err = fmt.Errorf("%s has more than %d bytes", path, maxPEM)
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), err // a byte order mark would hide the first block
}
