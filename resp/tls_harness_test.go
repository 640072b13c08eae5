package resp

import (
	"crypto/tls"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/simba-resp/simba-resp/tests/certs"
)

// overTLS is how the name of a test ends whose clients speak TLS.
const overTLS = "/TLS"

// onEachTransport runs a test in fake time, with clients that speak plain RESP and
// with clients that speak TLS.
func onEachTransport(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, name := range []string{"plain", overTLS[1:]} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// party is who proves by a certificate who it is, to whom, and whom it believes.
type party struct {
	authority *certs.Authority
	own       certs.Signed
}

var identities = struct {
	sync.Mutex
	made *party
}{}

// identity returns the certificate of all servers and clients of this run, made once.
func identity(t testing.TB) *party {
	t.Helper()
	identities.Lock()
	defer identities.Unlock()
	if identities.made == nil {
		authority := certs.NewAuthority(t, "test CA")
		identities.made = &party{authority, authority.Sign(t, certs.Leaf{Name: "billing"})}
	}
	return identities.made
}

// serverConfig asks clients for nothing.
func (p *party) serverConfig() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{p.own.Certificate}, MinVersion: tls.VersionTLS12,
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
}

// mutualConfig is serverConfig, asking clients for a certificate as it says.
func (p *party) mutualConfig(ask tls.ClientAuthType) *tls.Config {
	config := p.serverConfig()
	config.ClientAuth, config.ClientCAs = ask, p.authority.Pool
	return config
}

// clientConfig believes the authority and shows these certificates.
func (p *party) clientConfig(show ...certs.Signed) *tls.Config {
	config := &tls.Config{RootCAs: p.authority.Pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	for _, s := range show {
		config.Certificates = append(config.Certificates, s.Certificate)
	}
	return config
}
