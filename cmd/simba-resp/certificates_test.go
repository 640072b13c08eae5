package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/certs"
)

// site has the files of an authority and of a server's certificate, for one test.
type site struct {
	t         *testing.T
	dir       string
	authority *certs.Authority
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), authority: certs.NewAuthority(t, "test CA")}
	s.authority.Write(t, s.dir, "ca")
	s.write("server", certs.Leaf{Name: "first"})
	return s
}

// write writes a certificate and its key under that file name.
func (s *site) write(name string, l certs.Leaf) { s.authority.Sign(s.t, l).Write(s.t, s.dir, name) }

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// args returns the flags of a server with TLS and no plain text.
func (s *site) args(more ...string) []string {
	return append([]string{"--addr", "", "--tls-addr", "127.0.0.1:0", "--tls-cert-file", s.path("server.crt"), "--tls-key-file", s.path("server.key")}, more...)
}

// shown returns the name in the certificate that the server sends to a new connection.
func (s *site) shown(a *app) string {
	s.t.Helper()
	nc, err := tls.Dial("tcp", a.tlsLn.Addr().String(), s.clientConfig())
	must(s.t, err)
	defer nc.Close()
	return nc.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func (s *site) clientConfig() *tls.Config {
	return &tls.Config{RootCAs: s.authority.Pool, MinVersion: tls.VersionTLS12}
}

// dial connects a client over TLS.
func (s *site) dial(a *app) redis.Conn {
	s.t.Helper()
	c, err := redis.Dial("tcp", a.tlsLn.Addr().String(), redis.DialUseTLS(true), redis.DialTLSConfig(s.clientConfig()))
	must(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	return c
}

func TestAllTLSErrorsAreReportedAtOnce(t *testing.T) {
	s := newSite(t)
	s.write("other", certs.Leaf{})
	must(t, os.WriteFile(s.path("text"), []byte("no certificate"), 0o600))
	must(t, syscall.Mkfifo(s.path("pipe"), 0o600))
	cert, key, ca := s.path("server.crt"), s.path("server.key"), s.path("ca.crt")
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--addr= ", []string{"--addr: it is empty, and so are --tls-addr and --unixsocket"}},
		{"--tls-cert-file " + cert + " --tls-key-file " + key + " --tls-auth-clients yes --tls-min-version 1.3", []string{
			"--tls-cert-file: it needs --tls-addr", "--tls-key-file: it needs --tls-addr",
			"--tls-auth-clients: it needs --tls-addr", "--tls-min-version: it needs --tls-addr",
		}},
		{"--tls-addr 0.0.0.0:0 --tls-auth-clients optional", []string{
			"--tls-addr: 0.0.0.0:0 is open to other machines", "--tls-cert-file: --tls-addr needs it",
			"--tls-key-file: --tls-addr needs it", "--tls-ca-cert-file: --tls-auth-clients optional needs it",
		}},
		{"--tls-addr localhost --tls-auth-clients maybe --tls-min-version 1.1 --tls-cert-file " + cert, []string{
			"--tls-addr: 'localhost' is not host:port", "--tls-key-file: --tls-addr needs it",
			"--tls-auth-clients: 'maybe' is not one of no, optional, yes", "--tls-min-version: '1.1' is not one of 1.2, 1.3",
		}},
		{"--tls-addr 127.0.0.1:0 --tls-cert-file " + cert + " --tls-key-file " + key + " --tls-ca-cert-file " + ca, []string{
			"--tls-ca-cert-file: it needs --tls-auth-clients optional or yes",
		}},
		{"--tls-addr 127.0.0.1:0 --tls-cert-file $nowhere --tls-key-file $dir --tls-auth-clients yes --tls-ca-cert-file $dir/text", []string{
			"--tls-cert-file: open $nowhere", "--tls-key-file: $dir is not a regular file", "--tls-ca-cert-file: $dir/text has no PEM certificate",
		}},
		{"--tls-addr 127.0.0.1:0 --tls-cert-file " + cert + " --tls-key-file $dir/other.key", []string{
			"--tls-cert-file: " + cert + " with the key $dir/other.key: tls: private key does not match public key",
		}},
		{"--tls-addr 127.0.0.1:0 --tls-cert-file " + cert + " --tls-key-file $dir/pipe", []string{
			"--tls-key-file: $dir/pipe is not a regular file",
		}},
	} {
		fill := strings.NewReplacer("$dir", s.dir, "$nowhere", s.path("nowhere")).Replace
		_, err := loadTest(t, strings.Fields(fill(c.args)), nil, "")
		wrong, _ := err.(configErrors)
		for _, want := range c.want {
			i := slices.IndexFunc(wrong, func(err error) bool { return strings.HasPrefix(err.Error(), fill(want)) })
			if i < 0 {
				t.Errorf("%s: no error says %q", c.args, fill(want))
				continue
			}
			wrong = slices.Delete(wrong, i, i+1)
		}
		if len(wrong) > 0 {
			t.Errorf("%s: unexpected errors: %v", c.args, wrong)
		}
	}
}

func TestPublicTLSNeedsAPasswordOrClientCertificates(t *testing.T) {
	s := newSite(t)
	for more, allowed := range map[string]bool{
		"": false, "--requirepass x": true, "--insecure": true,
		"--tls-auth-clients yes --tls-ca-cert-file " + s.path("ca.crt"):      true,
		"--tls-auth-clients optional --tls-ca-cert-file " + s.path("ca.crt"): false,
	} {
		args := append(s.args("--tls-addr", "0.0.0.0:0"), strings.Fields(more)...)
		if _, err := loadTest(t, args, nil, ""); (err == nil) != allowed {
			t.Errorf("public --tls-addr with %q: loadConfig returned %v, want it allowed: %v", more, err, allowed)
		}
		// Required client certificates do not protect plain RESP.
		args = append(s.args("--addr", "0.0.0.0:0"), strings.Fields(more)...)
		allowed = more == "--requirepass x" || more == "--insecure"
		if _, err := loadTest(t, args, nil, ""); (err == nil) != allowed {
			t.Errorf("public --addr with %q: loadConfig returned %v, want it allowed: %v", more, err, allowed)
		}
	}
}

func TestTLSDisablesPlainTextByDefault(t *testing.T) {
	s := newSite(t)
	files := []string{"--tls-cert-file", s.path("server.crt"), "--tls-key-file", s.path("server.key")}
	const initial = "127.0.0.1:7379" // the default without TLS
	for _, c := range []struct {
		flags []string
		env   map[string]string
		file  string
		want  string
	}{
		{flags: []string{"--tls-addr", "127.0.0.1:0"}, want: ""},
		{env: map[string]string{"SIMBA_TLS_ADDR": "127.0.0.1:0"}, want: ""},
		{file: "tls-addr = '127.0.0.1:0'", want: ""},
		{flags: []string{"--tls-addr", "127.0.0.1:0", "--addr", initial}, want: initial},
		{flags: []string{"--tls-addr", "127.0.0.1:0"}, env: map[string]string{"SIMBA_ADDR": initial}, want: initial},
		{file: "tls-addr = '127.0.0.1:0'\naddr = '" + initial + "'", want: initial},
	} {
		cfg, err := loadTest(t, append(c.flags, files...), c.env, c.file)
		if err != nil || cfg.Addr != c.want {
			t.Errorf("%+v: loadConfig returned %+v, %v; want addr %q", c, cfg, err, c.want)
		}
	}
}

func TestWithoutAnAddressThereIsNoPlainText(t *testing.T) {
	s := newSite(t)
	a := startTestApp(t, s.args()...)
	if a.ln != nil {
		t.Errorf("the server listens without TLS on %s", a.ln.Addr())
	}
	c := s.dial(a)
	port := strconv.Itoa(portOf(a.tlsLn))
	if got, err := redis.StringMap(c.Do("CONFIG", "GET", "*port")); err != nil || got["port"] != "0" || got["tls-port"] != port {
		t.Errorf("CONFIG GET *port: %v, %v, want port 0 and tls-port %s", got, err, port)
	}
	info, err := redis.String(c.Do("INFO", "server"))
	expires := a.certs.current.Load().expires().Unix()
	for _, want := range []string{"tcp_port:" + port, "tls_port:" + port, fmt.Sprintf("tls_cert_expires_at:%d", expires)} {
		if err != nil || !strings.Contains(info, want+"\r\n") {
			t.Errorf("INFO lacks %s: %s, %v", want, info, err)
		}
	}
}

func TestCertificateReloadIsAllOrNothing(t *testing.T) {
	s := newSite(t)
	var log bytes.Buffer
	a, _ := newTestApp(t, &log, s.args()...)
	a.start()
	c := s.dial(a) // stays connected during all changes
	set := func(wantErr string, args ...any) {
		t.Helper()
		_, err := c.Do("CONFIG", append([]any{"SET"}, args...)...)
		if text := fmt.Sprint(err); wantErr == "" && err != nil || !strings.Contains(text, wantErr) {
			t.Errorf("CONFIG SET %v: %v, want %q", args, err, wantErr)
		}
	}
	shows := func(want string) {
		t.Helper()
		if got := s.shown(a); got != want {
			t.Errorf("the server shows the certificate of %q, want %q", got, want)
		}
	}

	// Tools that renew certificates write new content to the same path.
	s.write("server", certs.Leaf{Name: "second"})
	shows("first")
	set("", "tls-cert-file", s.path("server.crt"))
	shows("second")

	s.write("server", certs.Leaf{Name: "third"})
	a.reloadCertificate()
	shows("third")

	// A new certificate is in its file, but its key is not yet in the file of the key. So a reload
	// uses neither file.
	next := s.authority.Sign(t, certs.Leaf{Name: "fourth"})
	must(t, os.WriteFile(s.path("server.crt"), next.CertPEM, 0o600))
	a.reloadCertificate()
	shows("third")
	a.log.out.flush(time.Minute)
	if !strings.Contains(log.String(), "TLS reload failed; keeping the current certificate") || !strings.Contains(log.String(), "private key does not match") {
		t.Errorf("the log does not report the failed reload: %s", &log)
	}
	set("(possibly related to argument 'tls-key-file') - tls-cert-file: ", "tls-key-file", s.path("server.key"))
	shows("third")

	// A certificate and a key are valid only together. One command sets both, in any order.
	s.write("moved", certs.Leaf{Name: "fifth"})
	set("with the key", "tls-cert-file", s.path("moved.crt"))
	set("", "tls-key-file", s.path("moved.key"), "maxclients", "99", "tls-cert-file", s.path("moved.crt"))
	shows("fifth")

	// If one setting of a command fails, none changes.
	s.write("sixth", certs.Leaf{Name: "sixth"})
	set("'maxclients'", "tls-key-file", s.path("sixth.key"), "tls-cert-file", s.path("sixth.crt"), "maxclients", "0")
	shows("fifth")
	if got, err := redis.StringMap(c.Do("CONFIG", "GET", "tls-*")); err != nil || got["tls-cert-file"] != s.path("moved.crt") || got["tls-key-file"] != s.path("moved.key") {
		t.Errorf("CONFIG GET tls-* after a failed CONFIG SET: %v, %v; want the files of the fifth certificate", got, err)
	}

	// From now on the server requires client certificates.
	set("'tls-auth-clients') - tls-ca-cert-file: --tls-auth-clients yes needs it", "tls-auth-clients", "yes")
	set("", "tls-auth-clients", "YES", "tls-ca-cert-file", s.path("ca.crt"))
	if _, err := redis.Dial("tcp", a.tlsLn.Addr().String(), redis.DialUseTLS(true), redis.DialTLSConfig(s.clientConfig()), redis.DialClientName("x")); err == nil {
		t.Error("the server accepts a client without a certificate")
	}
	if _, err := c.Do("PING"); err != nil {
		t.Errorf("PING of a client that connected before the change returned %v, want no error", err)
	}
	set("immutable", "tls-addr", "127.0.0.1:0")
}

func TestPublicUsersWithoutPasswordNeedCertificates(t *testing.T) {
	s := newSite(t)
	users := usersFile(t, "user default off\nuser a on nopass +@all")
	args := s.args("--tls-auth-clients", "yes", "--tls-ca-cert-file", s.path("ca.crt"), "--aclfile", users)
	a, _ := newTestApp(t, io.Discard, append(args, "--tls-addr", "0.0.0.0:0")...)
	ask := func(whom string) error {
		return a.settings.set(map[string]string{"tls-auth-clients": whom}, a.settings.tls)
	}
	if err := ask(authOptional); err == nil || !strings.Contains(err.Error(), "without a password: [a]") {
		t.Errorf("the change to optional certificates returned %v, want an error that names user a", err)
	}
	if kind := a.certs.current.Load().config.ClientAuth; kind != tls.RequireAndVerifyClientCert {
		t.Errorf("after the refused change ClientAuth is %v, want RequireAndVerifyClientCert", kind)
	}
	must(t, os.WriteFile(users, []byte("user default off\nuser a on >pw +@all"), 0o600))
	if _, err := a.cfg.users.Load(); err != nil {
		t.Fatal(err)
	}
	if err := ask(authOptional); err != nil {
		t.Errorf("the change to optional certificates, with a password for each user, returned %v, want no error", err)
	}
	must(t, os.WriteFile(users, []byte("user default off\nuser a on nopass +@all"), 0o600))
	if _, err := a.cfg.users.Load(); err == nil {
		t.Error("while certificates are optional, Load accepted a user without a password")
	}
}

func TestSettingsOfTLSAreRefusedWithoutIt(t *testing.T) {
	s := newSite(t)
	a := startTestApp(t)
	_, err := dial(t, a).Do("CONFIG", "SET", "tls-cert-file", s.path("server.crt"), "tls-key-file", s.path("server.key"))
	if err == nil || !strings.Contains(err.Error(), "tls-cert-file: it needs --tls-addr") {
		t.Errorf("CONFIG SET of a TLS setting without TLS returned %v, want that it needs --tls-addr", err)
	}
	if got, err := redis.StringMap(dial(t, a).Do("CONFIG", "GET", "tls-port")); err != nil || got["tls-port"] != "0" {
		t.Errorf("CONFIG GET tls-port: %v, %v, want 0", got, err)
	}
}

func TestCertificateExpiryIsLoggedAtStartAndDaily(t *testing.T) {
	const day = 24 * time.Hour
	warnings := func(log *pipe) map[string]int {
		return map[string]int{
			"soon":    strings.Count(log.String(), "level=WARN msg=\"the TLS certificate expires soon"),
			"expired": strings.Count(log.String(), "level=WARN msg=\"the TLS certificate has expired"),
			"not yet": strings.Count(log.String(), "level=WARN msg=\"the TLS certificate is not valid yet"),
		}
	}
	synctest.Test(t, func(t *testing.T) {
		reach2026()
		s := newSite(t)
		s.write("server", certs.Leaf{Name: "old", NotAfter: time.Now().Add(20*day + time.Hour)})
		var log pipe
		a, _ := newTestApp(t, &log, s.args("--durability", "memory")...)
		expect := func(soon, expired int) {
			t.Helper()
			synctest.Wait()
			if got := warnings(&log); got["soon"] != soon || got["expired"] != expired || got["not yet"] != 0 {
				t.Errorf("the log has the warnings %v, want soon %d, expired %d, not yet 0", got, soon, expired)
			}
		}
		expect(0, 0)
		time.Sleep(6 * day)
		expect(0, 0)
		time.Sleep(14 * day)
		expect(14, 0)
		time.Sleep(2 * day)
		expect(14, 2)
		s.write("server", certs.Leaf{Name: "new"})
		a.reloadCertificate()
		time.Sleep(30 * day)
		expect(14, 2)
		if !strings.Contains(log.String(), "subject=\"CN=new\" expires=2099-01-01T00:00:00.000Z") {
			t.Errorf("the log does not show the certificate in use: %s", &log)
		}
		if err := a.stop(context.Background()); err != nil {
			t.Error(err)
		}
		s.write("server", certs.Leaf{NotBefore: time.Now().Add(day)})
		newTestApp(t, &log, s.args("--durability", "memory")...)
		synctest.Wait()
		if warnings(&log)["not yet"] != 1 {
			t.Errorf("the log does not warn of a certificate that begins tomorrow: %s", &log)
		}
	})
}

func TestCheckReportsAnExpiredCertificate(t *testing.T) {
	s := newSite(t)
	s.write("server", certs.Leaf{NotAfter: time.Now().Add(-time.Hour)})
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"check"}, s.args()...), func(string) string { return "" }, &out, nil)
	if want := "warning: the TLS certificate has expired: clients refuse it\nthe configuration is valid\n"; err != nil || out.String() != want {
		t.Errorf("check printed %q and returned %v, want %q and no error", &out, err, want)
	}
	must(t, os.Remove(s.path("server.key")))
	if err := run(t.Context(), append([]string{"check"}, s.args()...), func(string) string { return "" }, &out, nil); err == nil {
		t.Error("check accepts a missing key")
	}
}

func TestCertificatesMayBeginWithByteOrderMarks(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"server.crt", "server.key", "ca.crt"} {
		text, err := os.ReadFile(s.path(name))
		must(t, err)
		must(t, os.WriteFile(s.path("bom."+name), append([]byte("\ufeff"), text...), 0o600))
	}
	c, err := loadTest(t, s.args("--tls-cert-file", s.path("bom.server.crt"), "--tls-key-file", s.path("bom.server.key"),
		"--tls-auth-clients", "yes", "--tls-ca-cert-file", s.path("bom.ca.crt")), nil, "")
	must(t, err)
	if l, err := loadTLS(c); err != nil || l.leaf().Subject.String() != "CN=first" {
		t.Errorf("loadTLS returned %+v, %v; want the certificate CN=first", l, err)
	}
}
