package resp

import (
	"crypto/tls"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/simba-resp/simba-resp/tests/certs"
)

// overTLS is the suffix in the name of each test whose clients use TLS.
const overTLS = "/TLS"

// onEachTransport runs a test in fake time, once with plain clients and once with TLS clients.
func onEachTransport(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, name := range []string{"plain", overTLS[1:]} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// party has the certificate of one side of a connection, and the authority that this side trusts.
type party struct {
	authority *certs.Authority
	own       certs.Signed
}

var identities = struct {
	sync.Mutex
	made *party
}{}

// certified returns the certificate of all servers and clients of this run.
func certified(t testing.TB) *party {
	t.Helper()
	identities.Lock()
	defer identities.Unlock()
	if identities.made == nil {
		authority := certs.NewAuthority(t, "test CA")
		identities.made = &party{authority, authority.Sign(t, certs.Leaf{Name: "billing"})}
	}
	return identities.made
}

// serverConfig returns the configuration of a server that requires no client certificates.
func (p *party) serverConfig() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{p.own.Certificate}, MinVersion: tls.VersionTLS12,
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
}

// mutualConfig is serverConfig with a policy for client certificates.
func (p *party) mutualConfig(ask tls.ClientAuthType) *tls.Config {
	config := p.serverConfig()
	config.ClientAuth, config.ClientCAs = ask, p.authority.Pool
	return config
}

// clientConfig returns the configuration of a client that presents the given certificates.
func (p *party) clientConfig(show ...certs.Signed) *tls.Config {
	config := &tls.Config{RootCAs: p.authority.Pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	for _, s := range show {
		config.Certificates = append(config.Certificates, s.Certificate)
	}
	return config
}
