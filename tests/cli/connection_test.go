package cli

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func writeUsers(t *testing.T, lines ...string) string {
	t.Helper()
	return writeFile(t, "users.acl", strings.Join(lines, "\n")+"\n")
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	simbatest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestConnectionErrorSaysWhatToCheckAndNeverThePassword(t *testing.T) {
	users := writeUsers(t, "user default off", "user ops on >secret ~* &* +@all")
	s := simbatest.Start(t, "--aclfile", users)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	simbatest.Must(t, err)
	closed.Close()
	closes := listen(t, func(c net.Conn) {})
	for _, row := range []struct{ url, want string }{
		{"redis://u:secret@" + closed.Addr().String(), "connection refused; check that the server runs, and the URL"},
		{"redis://u:secret@no-such-host.invalid", "unknown host; check the URL"},
		{"redis://" + s.Addr, "the server asks for a login; set --user and --password-file or SIMBA_PASSWORD"},
		{"redis://ops:secret-but-wrong@" + s.Addr, "the server refuses the password of user ops; check both"},
		{"redis://:secret-but-wrong@" + s.Addr, "the server refuses the password of user default"},
		{"rediss://ops:secret@" + s.Addr, "the server does not speak TLS on this port"},
		{"unix://u:secret@/no/such/socket", "there is no such socket"},
		{"redis://u:secret@" + closes, "the server closed the connection"},
		{"redis://u:sec/secret@" + s.Addr, "SIMBA_URL: "},
	} {
		r := run(t, row.url, "status")
		code := 69
		if strings.HasPrefix(row.want, "SIMBA_URL") {
			code = 2
		}
		r.fails(t, code, row.want)
		if strings.Contains(r.err+r.out, "secret") {
			t.Errorf("the error shows the password: %s", r.err)
		}
	}
}

// The server delays replies to a host that sends wrong passwords. So a command must not send one
// twice.
func TestAWrongPasswordIsSentOnce(t *testing.T) {
	s := simbatest.Start(t, "--aclfile", writeUsers(t, "user default off", "user ops on >secret ~* &* +@all"))
	ops := goredis.NewClient(&goredis.Options{Addr: s.Addr, Username: "ops", Password: "secret"})
	defer ops.Close()
	wrong := "redis://ops:wrong@" + s.Addr
	for i, args := range [][]string{
		{"status"}, {"watch", "job"}, {"lock", "job", "--", "true"}, {"elect", "job", "--", "true"}, {"backup", t.TempDir()}, {"cluster", "status"},
	} {
		if r := run(t, wrong, args...); r.code != 69 || !strings.Contains(r.err, "the server refuses the password of user ops") {
			t.Errorf("%v with a wrong password: exit code %d and %q", args, r.code, r.err)
		}
		info, err := ops.Info(t.Context(), "stats").Result()
		if want := fmt.Sprintf("acl_access_denied_auth:%d\r\n", i+1); err != nil || !strings.Contains(info, want) {
			t.Fatalf("after %v INFO returns %v, want %q in\n%s", args, err, want, info)
		}
	}
}

// listen accepts connections at the address that it returns. It calls serve for each connection,
// and then closes the connection.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	simbatest.Must(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		running.Wait()
	})
	return ln.Addr().String()
}

func TestLoginBySettings(t *testing.T) {
	users := writeUsers(t, "user default off", "user ops on >s@cret ~* &* +@all", "user reader on >pen %R~job* +simba.owner +hello +ping")
	s := simbatest.Start(t, "--aclfile", users)
	password := writeFile(t, "password", "s@cret\n")
	config := writeFile(t, "client.toml", "url = \"redis://"+s.Addr+"\"\nuser = \"ops\"\npassword-file = \""+password+"\"\n")
	for name, row := range map[string]struct{ env, args []string }{
		"URL":         {[]string{"SIMBA_URL=redis://ops:s%40cret@" + s.Addr}, nil},
		"flags":       {nil, []string{"--url", url(s), "--user", "ops", "--password-file", password}},
		"variables":   {[]string{"SIMBA_URL=" + url(s), "SIMBA_USER=ops", "SIMBA_PASSWORD=s@cret"}, nil},
		"file":        {nil, []string{"--config", config}},
		"file of var": {[]string{"SIMBA_URL=" + url(s), "SIMBA_USER=ops", "SIMBA_PASSWORD_FILE=" + password}, nil},
	} {
		if r := runWith(t, row.env, append([]string{"status"}, row.args...)...); r.code != 0 {
			t.Errorf("with the settings by %s: exit code %d: %s", name, r.code, r.err)
		}
	}
	// A user needs only the rights for what a command sends.
	as := "redis://reader:pen@" + s.Addr
	run(t, as, "owner", "job").fails(t, 1, "job has no owner")
	run(t, as, "owner", "other").fails(t, 69, "NOPERM")
	run(t, as, "status").fails(t, 69, "NOPERM")
}

func TestCommandsWorkOverTLS(t *testing.T) {
	dir := t.TempDir()
	authority := certs.NewAuthority(t, "test CA")
	ca := authority.Write(t, dir, "ca")
	cert, key := authority.Sign(t, certs.Leaf{Name: "server"}).Write(t, dir, "server")
	clientCert, clientKey := authority.Sign(t, certs.Leaf{Name: "ops"}).Write(t, dir, "client")
	other := certs.NewAuthority(t, "another CA").Write(t, dir, "other")
	p := simbatest.Launch(t, "--tls-addr", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca,
		"--tls-auth-clients", "yes", "--data-dir", t.TempDir()+"/data")
	addr := p.Wants(t, `msg=ready .*tls=(\S+)`)[1]
	secure := "rediss://" + addr
	out := must(t, secure, "status", "--cacert", ca, "--cert", clientCert, "--key", clientKey)
	if !strings.Contains(out, "certificate") || !strings.Contains(out, "expires 20") {
		t.Errorf("status prints\n%s\nwant the end of the certificate", out)
	}
	run(t, secure, "status", "--cacert", other, "--cert", clientCert, "--key", clientKey).fails(t, 69, "check --cacert")
	run(t, secure, "status", "--cacert", ca).fails(t, 69, "check --cert and --key")
	run(t, "redis://"+addr, "status").fails(t, 69, "whether it needs rediss://")
}

func TestCommandsWorkOverAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "simba.sock")
	simbatest.Start(t, "--unixsocket", path)
	if out := must(t, "unix://"+path, "status"); !strings.Contains(out, path) {
		t.Errorf("status prints\n%s\nwant %s in it", out, path)
	}
}

func TestConnectionHasTheNameOfItsCommand(t *testing.T) {
	s := simbatest.Start(t)
	watch(t, s, "job")
	list, err := simbatest.GoRedis(t, s).ClientList(t.Context()).Result()
	if err != nil || !strings.Contains(list, " name=simba-resp:watch ") {
		t.Errorf("CLIENT LIST does not show watch: %s, %v", list, err)
	}
}

// A server that accepts a connection can still be frozen, or a load balancer without servers.
func TestTheNextAddressIsTriedIfOneDoesNotAnswer(t *testing.T) {
	s := simbatest.Start(t)
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	simbatest.Must(t, err)
	refusing.Close()
	dead := map[string]string{
		"refuses": refusing.Addr().String(), "host without a server": "localhost:1",
		"closes": listen(t, func(net.Conn) {}), "is silent": listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }),
	}
	for name, addr := range dead {
		if r := run(t, addr+","+s.Addr, "owner", "free"); r.code != 1 || r.err == "" {
			t.Errorf("if the first address %s, owner exits with code %d: %s", name, r.code, r.err)
		}
		if r := run(t, "redis://"+s.Addr+","+addr, "lock", "job", "--", "true"); r.code != 0 {
			t.Errorf("if the second address %s, lock exits with code %d: %s", name, r.code, r.err)
		}
	}
	if r := run(t, dead["refuses"]+","+s.Addr, "lock", "job", "--", "true"); r.code != 0 {
		t.Errorf("if the first address refuses, lock exits with code %d: %s", r.code, r.err)
	}
	run(t, dead["refuses"]+","+dead["closes"], "status").fails(t, 69, dead["refuses"]+","+dead["closes"]+": ")
}
