package clients

import (
	"crypto/tls"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

type tlsServer struct {
	*simbatest.Process
	t         *testing.T
	addr      string // address for TLS
	dir       string // folder of the certificates
	authority *certs.Authority
}

// tlsReady matches the log line of a ready server, with its address for TLS.
const tlsReady = `msg=ready .*tls=(\S+)`

// startTLS starts a server with TLS. It has no plain-text port unless args set one.
func startTLS(t *testing.T, args ...string) *tlsServer {
	t.Helper()
	s := &tlsServer{t: t, dir: t.TempDir(), authority: certs.NewAuthority(t, "test CA")}
	ca := s.authority.Write(t, s.dir, "ca")
	cert, key := s.write("server", "first")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$ca", ca)
	}
	s.Process = simbatest.Launch(t, append([]string{
		"--tls-addr", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key, "--data-dir", t.TempDir() + "/data",
	}, args...)...)
	s.addr = s.Wants(t, tlsReady)[1]
	return s
}

// write creates a certificate with this common name. It writes the certificate and its key to
// files named after file.
func (s *tlsServer) write(file, name string) (cert, key string) {
	return s.authority.Sign(s.t, certs.Leaf{Name: name}).Write(s.t, s.dir, file)
}

// cli runs redis-cli over TLS, and returns its output.
func (s *tlsServer) cli(args ...string) string {
	s.t.Helper()
	return simbatest.Output(s.t, "redis-cli", s.cliArgs(args...)...)
}

func (s *tlsServer) cliArgs(args ...string) []string {
	_, port, _ := net.SplitHostPort(s.addr)
	return append([]string{"--tls", "--cacert", s.dir + "/ca.crt", "-p", port}, args...)
}

// client returns a go-redis client, which shows at most one certificate.
func (s *tlsServer) client(show ...certs.Signed) *goredis.Client {
	config := &tls.Config{RootCAs: s.authority.Pool, MinVersion: tls.VersionTLS12}
	for _, own := range show {
		config.Certificates = append(config.Certificates, own.Certificate)
	}
	c := goredis.NewClient(&goredis.Options{Addr: s.addr, TLSConfig: config, MaxRetries: -1, ReadTimeout: simbatest.Patience})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// shown returns the common name in the certificate that the server shows to a new connection.
func (s *tlsServer) shown() string {
	s.t.Helper()
	nc, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: s.authority.Pool, MinVersion: tls.VersionTLS12})
	simbatest.Must(s.t, err)
	defer nc.Close()
	return nc.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func (s *tlsServer) blocked(want int) {
	s.t.Helper()
	c := s.client()
	simbatest.Await(s.t, fmt.Sprintf("%d clients are blocked", want), func() bool {
		info, err := c.Info(s.t.Context(), "clients").Result()
		simbatest.Must(s.t, err)
		return strings.Contains(info, fmt.Sprintf("blocked_clients:%d\r\n", want))
	})
}

// needTLSTools works like simbatest.NeedRedisTools, for a redis-cli with TLS.
func needTLSTools(t *testing.T) {
	t.Helper()
	simbatest.NeedRedisTools(t)
	if help, _ := exec.Command("redis-cli", "--help").CombinedOutput(); !strings.Contains(string(help), "--tls") {
		need.Missing(t, "redis-cli is built without TLS")
	}
}

func TestMutualTLSAcceptsOnlyCertificatesOfItsAuthority(t *testing.T) {
	s := startTLS(t, "--tls-auth-clients", "yes", "--tls-ca-cert-file", "$ca")
	known := s.authority.Sign(t, certs.Leaf{Name: "billing"})
	foreign := certs.NewAuthority(t, "another CA").Sign(t, certs.Leaf{Name: "billing"})
	expired := s.authority.Sign(t, certs.Leaf{Name: "billing", NotAfter: time.Now().Add(-time.Hour)})
	if status, _ := simbatest.Acquire(t, s.client(known), "job", "a", 60_000); status != "acquired" {
		t.Errorf("ACQUIRE returns %s, want acquired", status)
	}
	for name, show := range map[string][]certs.Signed{"none": nil, "of another authority": {foreign}, "expired": {expired}} {
		if err := s.client(show...).Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "tls: ") {
			t.Errorf("PING with the certificate %s returns %v, want a TLS error", name, err)
		}
	}
	t.Run("redis-cli", func(t *testing.T) {
		needTLSTools(t)
		cert, key := known.Write(t, s.dir, "client")
		if got := simbatest.Output(t, "redis-cli", s.cliArgs("--cert", cert, "--key", key, "PING")...); got != "PONG" {
			t.Errorf("redis-cli with a certificate prints %s", got)
		}
		if got := s.cli("PING"); !strings.Contains(got, "ertificate") && !strings.Contains(got, "Error") {
			t.Errorf("redis-cli without a certificate prints %s", got)
		}
	})
}

// A reload must keep connections, so that a waiter stays in its queue.
func TestSIGHUPReloadsTheCertificateAndKeepsConnections(t *testing.T) {
	s := startTLS(t)
	c := s.client()
	status, token := simbatest.Acquire(t, c, "job", "a", 600_000)
	if status != "acquired" {
		t.Fatalf("ACQUIRE returns %s, want acquired", status)
	}
	type granted struct {
		status string
		token  int64
	}
	handed := make(chan granted, 1)
	waiter := s.client()
	go func() {
		r, err := simbatest.ToRecord(waiter.Do(t.Context(), "SIMBA.ACQUIRE", "job", "b", 600_000, "WAIT", 0).Result())
		if err != nil {
			t.Errorf("the waiter gets the error %v", err)
			handed <- granted{}
			return
		}
		handed <- granted{r["status"].(string), r["token"].(int64)}
	}()
	s.blocked(1)
	if got := s.shown(); got != "first" {
		t.Errorf("the server shows the certificate %s, want first", got)
	}
	s.write("server", "second")
	s.Signal(syscall.SIGHUP)
	s.Wants(t, `level=INFO msg="TLS certificate in use" subject="?CN=second"? expires=`)
	if got := s.shown(); got != "second" {
		t.Errorf("after the reload the server shows the certificate %s, want second", got)
	}

	// The server must refuse a certificate that does not match the key.
	s.authority.Sign(t, certs.Leaf{Name: "third"}).Write(t, s.dir, "third")
	simbatest.Output(t, "cp", s.dir+"/third.crt", s.dir+"/server.crt")
	s.Signal(syscall.SIGHUP)
	s.Wants(t, `level=ERROR msg="TLS reload failed; keeping the current certificate"`)
	if got := s.shown(); got != "second" {
		t.Errorf("after a failed reload the server shows the certificate %s, want second", got)
	}

	if released := c.Do(t.Context(), "SIMBA.RELEASE", "job", "a").Val(); released != int64(1) {
		t.Errorf("RELEASE by a returns %v", released)
	}
	if got := <-handed; got.status != "acquired" || got.token <= token {
		t.Errorf("the waiter gets %v, want acquired with a token above %d", got, token)
	}
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(t); code != 0 {
		t.Errorf("the server exits with code %d, want 0", code)
	}
}
