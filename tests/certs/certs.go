// Package certs creates certificates for tests. Each run creates new ones, so none expires, and the
// repository has no keys.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The default validity. It includes the year 2000, in which the fake time of testing/synctest
// begins.
var (
	begin = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	end   = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	Pool *x509.CertPool // with only the authority's certificate
	PEM  []byte         // the same certificate

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Leaf describes a certificate that is not an authority. The zero value has no name and is valid.
type Leaf struct {
	Name                string    // common name; "" = none
	Host                string    // the only host name; "" = localhost and 127.0.0.1
	NotBefore, NotAfter time.Time // zero = the default: 1999 and 2099
}

// Signed is a certificate with its key.
type Signed struct {
	tls.Certificate
	CertPEM, KeyPEM []byte
}

func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: begin, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	der := sign(t, &template, &template, key, key)
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{Pool: x509.NewCertPool(), PEM: block("CERTIFICATE", der), certificate: certificate, key: key}
	a.Pool.AddCert(certificate)
	return a
}

// Sign returns a certificate for servers and clients, on 127.0.0.1 and localhost unless the leaf names a host.
func (a *Authority) Sign(t testing.TB, l Leaf) Signed {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: l.Name}, NotBefore: l.NotBefore, NotAfter: l.NotAfter,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if l.Host != "" {
		template.DNSNames, template.IPAddresses = []string{l.Host}, nil
	}
	if l.NotBefore.IsZero() {
		template.NotBefore = begin
	}
	if l.NotAfter.IsZero() {
		template.NotAfter = end
	}
	key := newKey(t)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	s := Signed{CertPEM: block("CERTIFICATE", sign(t, &template, a.certificate, key, a.key)), KeyPEM: block("PRIVATE KEY", secret)}
	if s.Certificate, err = tls.X509KeyPair(s.CertPEM, s.KeyPEM); err != nil {
		t.Fatal(err)
	}
	return s
}

// Write writes the certificate and the key to dir, as <name>.crt and <name>.key. It returns both
// paths.
func (s Signed) Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	return write(t, dir, name+".crt", s.CertPEM), write(t, dir, name+".key", s.KeyPEM)
}

// Write writes the authority's certificate to dir, as <name>.crt, and returns the path.
func (a *Authority) Write(t testing.TB, dir, name string) string {
	t.Helper()
	return write(t, dir, name+".crt", a.PEM)
}

func write(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
